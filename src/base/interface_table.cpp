// SPDX-License-Identifier: BSD-3-Clause
// base/interface_table: see the header.
#include "base/interface_table.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/fd.hpp"
#include "base/log.hpp"

namespace base {

namespace {

constexpr std::string_view blanks = " \t\r";

std::string_view take_word(std::string_view &line) {
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    const auto word = line.substr(0, line.find_first_of(blanks));
    line.remove_prefix(word.size());
    return word;
}

bool is_same(const sockaddr &left, const sockaddr &right) {
    if (left.sa_family != right.sa_family) {
        return false;
    }
    if (left.sa_family == AF_INET) {
        return std::memcmp(&reinterpret_cast<const sockaddr_in &>(left).sin_addr,
                           &reinterpret_cast<const sockaddr_in &>(right).sin_addr, sizeof(in_addr)) == 0;
    }
    return left.sa_family == AF_INET6 &&
           std::memcmp(&reinterpret_cast<const sockaddr_in6 &>(left).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6 &>(right).sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

InterfaceTable InterfaceTable::parse(std::string_view text, const char *source) {
    InterfaceTable table;
    for (unsigned number = 1; !text.empty(); ++number) {
        const auto whole = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(whole.size() + 1, text.size()));
        auto line = whole.substr(0, whole.find('#'));
        const auto interface = take_word(line);
        const auto word = take_word(line);
        if (interface.empty()) {
            continue;
        }
        if (word.empty() || !take_word(line).empty()) {
            BASE_LOG(Warning, "%s:%u: \"%.*s\" is left out (expected an interface and a device)", source,
                     number, static_cast<int>(whole.size()), whole.data());
        } else if (!table.words_.try_emplace(std::string{interface}, word).second) {
            BASE_LOG(Warning, "%s:%u: \"%.*s\" is left out (the interface has a line before)", source, number,
                     static_cast<int>(whole.size()), whole.data());
        }
    }
    return table;
}

InterfaceTable InterfaceTable::read(const char *path) {
    const Fd file{open(path, O_RDONLY | O_CLOEXEC)};
    std::string text;
    std::array<char, 4096> bytes;
    ssize_t size = file ? ::read(file.get(), bytes.data(), bytes.size()) : -1;
    while (size > 0) {
        text.append(bytes.data(), static_cast<std::size_t>(size));
        size = ::read(file.get(), bytes.data(), bytes.size());
    }
    if (size < 0) {
        if (errno != ENOENT) {
            BASE_LOG(Warning, "%s cannot be read: %s", path, std::strerror(errno));
        }
        return {};
    }
    return parse(text, path);
}

// An address may have a label of its own, such as eth0:1.
std::optional<std::string> InterfaceTable::word_of(const sockaddr &local) const {
    ifaddrs *first = nullptr;
    if (empty() || getifaddrs(&first) != 0) {
        return std::nullopt;
    }
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{first, freeifaddrs};
    for (const ifaddrs *one = first; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || !is_same(*one->ifa_addr, local)) {
            continue;
        }
        const std::string_view name{one->ifa_name};
        const auto found = words_.find(name.substr(0, name.find(':')));
        return found != words_.end() ? std::optional{found->second} : std::nullopt;
    }
    return std::nullopt;
}

}  // namespace base
