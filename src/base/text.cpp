// SPDX-License-Identifier: BSD-3-Clause
#include "base/text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fd.hpp"
#include "base/log.hpp"

namespace base {

std::optional<std::string> text_of_file(const char *path) {
    const Fd file{open(path, O_RDONLY | O_CLOEXEC)};
    std::string text;
    std::array<char, 4096> bytes;
    ssize_t size = file ? read(file.get(), bytes.data(), bytes.size()) : -1;
    while (size > 0) {
        text.append(bytes.data(), static_cast<std::size_t>(size));
        size = read(file.get(), bytes.data(), bytes.size());
    }
    if (size == 0) {
        return text;
    }
    if (errno != ENOENT) {
        BASE_LOG(Warning, "%s cannot be read: %s", path, std::strerror(errno));
    }
    return std::nullopt;
}

std::string_view take_word(std::string_view &line) {
    constexpr std::string_view blanks = " \t\r";
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    const auto word = line.substr(0, line.find_first_of(blanks));
    line.remove_prefix(word.size());
    return word;
}

}  // namespace base
