// SPDX-License-Identifier: BSD-3-Clause
#include "registry/process.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <set>
#include <system_error>

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
           std::to_string(process) + "-" + std::to_string(inode);
}

std::optional<FileName> parse_file_name(std::string_view text) {
    FileName name;
    if (!text.starts_with(prefix)) {
        return std::nullopt;
    }
    std::string_view left = text.substr(prefix.size());
    const bool parsed = take_number(left, name.user, false) && take_number(left, name.space, false) &&
                        take_number(left, name.process, false) && take_number(left, name.inode, true);
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

// The owner of /proc/PID is the process's effective user.
std::vector<uid_t> users_with_processes() {
    constexpr std::size_t most = 1024;
    std::set<uid_t> users;
    std::error_code error;
    std::filesystem::directory_iterator processes{"/proc", error};
    for (; !error && processes != std::filesystem::directory_iterator{}; processes.increment(error)) {
        const std::string name = processes->path().filename().string();
        struct stat status{};
        if (name.find_first_not_of("0123456789") == std::string::npos &&
            stat(processes->path().c_str(), &status) == 0) {
            users.insert(status.st_uid);
            if (users.size() > most) {
                users.erase(std::prev(users.end()));
            }
        }
    }
    users.insert({0, geteuid()});
    return {users.begin(), users.end()};
}

base::Result<void> lock_while_mapped(int file) {
    struct flock whole{};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    return fcntl(file, F_OFD_SETLK, &whole) == 0 ? base::Result<void>{} : base::last_failure();
}

// A reader's lock, which any user may have, is none.
bool is_locked(int file) {
    struct flock other{};
    other.l_type = F_RDLCK;
    other.l_whence = SEEK_SET;
    return fcntl(file, F_OFD_GETLK, &other) != 0 || other.l_type != F_UNLCK;
}

}  // namespace registry
