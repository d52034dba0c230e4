// SPDX-License-Identifier: BSD-3-Clause
// rsocket/kernel_socket: what rsockets ask and tell the socket of the kernel behind their descriptor.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "stream/address.hpp"

namespace rsockets {

[[nodiscard]] inline int pending_error(int fd) {
    int error = 0;
    socklen_t length = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

[[nodiscard]] inline bool has_option(int fd, int level, int name) {
    int value = 0;
    socklen_t length = sizeof(value);
    return getsockopt(fd, level, name, &value, &length) == 0 && value != 0;
}

// siw takes ports of TCP: two sockets that both allow it may have one port, as long as one of them listens.
inline void share_port(int fd) {
    constexpr int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

[[nodiscard]] inline int family_of(int fd) {
    int family = AF_UNSPEC;
    socklen_t length = sizeof(family);
    (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
    return family;
}

// Returns a copy of a program's address, or nothing when TCP would not take it.
[[nodiscard]] inline std::optional<sockaddr_storage> copied(const sockaddr *address, socklen_t length) {
    sockaddr_storage copy{};
    if (address == nullptr || length < sizeof(sockaddr_in) || length > sizeof(copy)) {
        return std::nullopt;
    }
    std::memcpy(&copy, address, length);
    const bool known = copy.ss_family == AF_INET || copy.ss_family == AF_INET6;
    return known && length >= stream::length_of(copy) ? std::optional{copy} : std::nullopt;
}

inline void give_name(const sockaddr_storage &name, sockaddr *address, socklen_t *length) {
    if (address != nullptr && length != nullptr) {
        std::memcpy(address, &name, std::min(*length, stream::length_of(name)));
        *length = stream::length_of(name);
    }
}

}  // namespace rsockets
