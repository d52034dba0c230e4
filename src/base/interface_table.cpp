// SPDX-License-Identifier: BSD-3-Clause
// base/interface_table: see the header.
#include "base/interface_table.hpp"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

#include "base/log.hpp"
#include "base/text.hpp"

namespace base {

namespace {

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
    for_lines(text, [&](Line line) {
        const auto interface = take_word(line.said);
        const auto word = take_word(line.said);
        if (interface.empty()) {
            return;
        }
        const char *reason = nullptr;
        if (word.empty() || !take_word(line.said).empty()) {
            reason = "expected an interface and a device";
        } else if (!table.words_.try_emplace(std::string{interface}, word).second) {
            reason = "the interface has a line before";
        }
        if (reason != nullptr) {
            BASE_LOG(Warning, "%s:%u: \"%.*s\" is left out (%s)", source, line.number,
                     static_cast<int>(line.whole.size()), line.whole.data(), reason);
        }
    });
    return table;
}

InterfaceTable InterfaceTable::read(const char *path) {
    const auto text = text_of_file(path);
    return text ? parse(*text, path) : InterfaceTable{};
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
