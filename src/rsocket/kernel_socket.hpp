// SPDX-License-Identifier: BSD-3-Clause
// rsocket/kernel_socket: the calls that rsockets make on the kernel's socket behind their descriptor.
#pragma once

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/address.hpp"
#include "base/fd.hpp"
#include "base/result.hpp"

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

// An accepted socket that a process has begun to use is marked, so that another process that has it too knows
// it. The mark is a value of an option that has an effect on listeners only. The kernel keeps it, and gives a
// connection the value of its listener. Hardly any program sets this value, which saves the link's header
// too.
constexpr int save_syn_of_streams = 2;

inline void mark_as_stream(int fd) {
    (void)setsockopt(fd, IPPROTO_TCP, TCP_SAVE_SYN, &save_syn_of_streams, sizeof(save_syn_of_streams));
}

[[nodiscard]] inline bool is_marked_as_stream(int fd) {
    int value = 0;
    socklen_t length = sizeof(value);
    return getsockopt(fd, IPPROTO_TCP, TCP_SAVE_SYN, &value, &length) == 0 && value == save_syn_of_streams;
}

[[nodiscard]] inline int family_of(int fd) {
    int family = AF_UNSPEC;
    socklen_t length = sizeof(family);
    (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
    return family;
}

// Ends the connection of a TCP socket, if there is one, so that it may connect again. Takes back the options
// that the device, rconnect and the program have set.
inline void make_unconnected(int fd) {
    const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
    (void)::connect(fd, &nobody, sizeof(nobody));
    (void)pending_error(fd);  // that the connection is gone
    const base::Fd fresh{::socket(family_of(fd), SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct Name {
        int level;
        int name;
    };
    constexpr std::array<Name, 10> names{{{SOL_SOCKET, SO_KEEPALIVE},
                                          {SOL_SOCKET, SO_LINGER},
                                          {IPPROTO_TCP, TCP_NODELAY},
                                          {IPPROTO_TCP, TCP_KEEPIDLE},
                                          {IPPROTO_TCP, TCP_KEEPINTVL},
                                          {IPPROTO_TCP, TCP_KEEPCNT},
                                          {IPPROTO_TCP, TCP_USER_TIMEOUT},
                                          {IPPROTO_TCP, TCP_NOTSENT_LOWAT},
                                          {IPPROTO_TCP, TCP_DEFER_ACCEPT},
                                          {IPPROTO_TCP, TCP_SAVE_SYN}}};
    for (const auto &[level, name] : names) {
        linger value{};
        socklen_t length = sizeof(value);
        if (getsockopt(fresh.get(), level, name, &value, &length) == 0) {
            (void)setsockopt(fd, level, name, &value, length);
        }
    }
}

// Returns a copy of a program's address, or nothing when TCP would not take it.
[[nodiscard]] inline std::optional<sockaddr_storage> copied(const sockaddr *address, socklen_t length) {
    sockaddr_storage copy{};
    if (address == nullptr || length < sizeof(sockaddr_in) || length > sizeof(copy)) {
        return std::nullopt;
    }
    std::memcpy(&copy, address, length);
    const bool known = copy.ss_family == AF_INET || copy.ss_family == AF_INET6;
    return known && length >= base::length_of(copy) ? std::optional{copy} : std::nullopt;
}

inline void give_name(const sockaddr_storage &name, sockaddr *address, socklen_t *length) {
    if (address != nullptr && length != nullptr) {
        std::memcpy(address, &name, std::min(*length, base::length_of(name)));
        *length = base::length_of(name);
    }
}

}  // namespace rsockets
