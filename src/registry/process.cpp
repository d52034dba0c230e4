// SPDX-License-Identifier: BSD-3-Clause
// registry/process: reads /proc about processes.
#include "registry/process.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace registry {

namespace {

constexpr std::string_view prefix = "rsocket-";

// Takes a number off the text, and the separator behind it; the last number has none.
template <typename Number>
bool take_number(std::string_view &text, Number &number, bool is_last) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (error != std::errc{} || is_last != text.empty() || (!is_last && text.front() != '-')) {
        return false;
    }
    text.remove_prefix(is_last ? 0 : 1);
    return true;
}

}  // namespace

std::string FileName::text() const {
    return std::string{prefix} + std::to_string(user) + "-" + std::to_string(space) + "-" +
           std::to_string(process) + "-" + std::to_string(start) + "-" + std::to_string(inode);
}

std::optional<FileName> parse_file_name(std::string_view text) {
    FileName name;
    if (!text.starts_with(prefix)) {
        return std::nullopt;
    }
    std::string_view left = text.substr(prefix.size());
    const bool parsed = take_number(left, name.user, false) && take_number(left, name.space, false) &&
                        take_number(left, name.process, false) && take_number(left, name.start, false) &&
                        take_number(left, name.inode, true);
    return parsed && name.process > 0 && name.text() == text ? std::optional{name} : std::nullopt;
}

ino_t own_space() {
    struct stat status{};
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self", error);
    return !error && self == std::to_string(getpid()) && stat("/proc/self/ns/pid", &status) == 0
               ? status.st_ino
               : 0;
}

// "PID (COMMAND) STATE PPID ...": the command may have any character. The start is the 22nd field.
std::optional<std::uint64_t> start_of(pid_t process) {
    std::ifstream file{"/proc/" + std::to_string(process) + "/stat"};
    std::string line;
    if (!std::getline(file, line)) {
        return std::nullopt;
    }
    std::string_view left = line;
    left.remove_prefix(std::min(left.rfind(')'), left.size()));
    constexpr int fields_to_start = 20;
    for (int field = 0; field < fields_to_start; ++field) {
        left.remove_prefix(std::min(left.find(' '), left.size()));
        left.remove_prefix(left.empty() ? 0 : 1);
        if (field == 0 && (left.starts_with('Z') || left.starts_with('X'))) {
            return std::nullopt;
        }
    }
    std::uint64_t start = 0;
    const auto parsed = std::from_chars(left.data(), left.data() + left.size(), start);
    return parsed.ec == std::errc{} ? std::optional{start} : std::nullopt;
}

// "BEGIN-END PERMISSIONS OFFSET MAJOR:MINOR INODE   PATH": the path is not that of a file that got its name
// later.
bool is_in_use(const FileName &name, const std::string &path) {
    const ino_t space = own_space();
    if (space == 0 || name.space != space) {
        return true;
    }
    struct stat status{};
    if (start_of(name.process) != name.start || lstat(path.c_str(), &status) != 0) {
        return false;
    }
    std::array<char, 64> wanted{};
    (void)std::snprintf(wanted.data(), wanted.size(), " %02x:%02x %ju ", major(status.st_dev),
                        minor(status.st_dev), std::uintmax_t{status.st_ino});
    std::ifstream mappings{"/proc/" + std::to_string(name.process) + "/maps"};
    bool any = false;
    for (std::string line; std::getline(mappings, line); any = true) {
        if (line.contains(wanted.data())) {
            return true;
        }
    }
    return !any;
}

}  // namespace registry
