// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/sockets: how sockets begin and end, and their options.
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/interpose.hpp"
#include "base/user_memory.hpp"
#include "carry/sockets.hpp"
#include "carry/waits.hpp"
#include "carry_preload/configuration.hpp"
#include "carry_preload/fresh.hpp"
#include "carry_preload/hand_over.hpp"

using carry::Socket;
using carry::sockets;
using carry_preload::fresh;

namespace {

// af_smc(7): such a socket is TCP until both ends have agreed on more.
constexpr int smc_over_inet = 0;  // SMCPROTO_SMC
constexpr int smc_over_inet6 = 1;

bool is_tcp(int domain, int type, int protocol) {
    return (domain == AF_INET || domain == AF_INET6) &&
           (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
           (protocol == 0 || protocol == IPPROTO_TCP) && !carry_preload::keeps_all_in_tcp() &&
           carry_preload::carries(domain, type, protocol);
}

// Takes a socket that accept(2) has made of the listener's connections.
int accepted(int listener, int made, bool blocks) {
    (void)fresh(made);
    const Socket *const parent = sockets.at(listener);
    if (made < 0 || parent == nullptr || carry_preload::keeps_all_in_tcp()) {
        return made;
    }
    sockets.made(made, Socket::Role::Accepted, blocks, parent->is_smc());
    if (Socket *const socket = parent->stays_for_option() ? sockets.at(made) : nullptr; socket != nullptr) {
        socket->stay_for_option();
    }
    return made;
}

// Returns the value of an option of level SOL_SOCKET that is another one than that of the kernel's socket.
std::optional<int> smc_value(int fd, int option) {
    int family = AF_INET;
    socklen_t length = sizeof(family);
    switch (option) {
        case SO_DOMAIN:
            return AF_SMC;
        case SO_PROTOCOL:
            (void)LIBC(getsockopt)(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
            return family == AF_INET6 ? smc_over_inet6 : smc_over_inet;
        default:
            return std::nullopt;
    }
}

// These options make the kernel's socket behave in a way that the ring does not.
bool stays_with(int level, int option) {
    if (level == SOL_SOCKET) {
        return option == SO_RCVLOWAT || option == SO_PEEK_OFF || option == SO_TIMESTAMP ||
               option == SO_TIMESTAMPNS || option == SO_TIMESTAMPING || option == SO_ZEROCOPY ||
               option == SO_TIMESTAMP_NEW || option == SO_TIMESTAMPNS_NEW || option == SO_TIMESTAMPING_NEW;
    }
    return level == IPPROTO_TCP && (option == TCP_ULP || option == TCP_INQ || option == TCP_REPAIR ||
                                    option == TCP_MD5SIG || option == TCP_NOTSENT_LOWAT);
}

}  // namespace

INTERPOSED(3, socket)(int domain, int type, int protocol) noexcept {
    const bool is_smc = domain == AF_SMC && (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
                        (protocol == smc_over_inet || protocol == smc_over_inet6);
    if (is_smc) {
        domain = protocol == smc_over_inet6 ? AF_INET6 : AF_INET;
        protocol = IPPROTO_TCP;
    }
    const int made = fresh(LIBC(socket)(domain, type, protocol));
    if (made >= 0 && is_tcp(domain, type, protocol)) {
        sockets.made(made, Socket::Role::Connects, (type & SOCK_NONBLOCK) == 0, is_smc);
    }
    return made;
}

INTERPOSED(3, accept)(int fd, sockaddr *address, socklen_t *length) {
    return accepted(fd, LIBC(accept)(fd, address, length), true);
}

INTERPOSED(4, accept4)(int fd, sockaddr *address, socklen_t *length, int flags) {
    return accepted(fd, LIBC(accept4)(fd, address, length, flags), (flags & SOCK_NONBLOCK) == 0);
}

// A program that disconnects a socket may connect it to another peer.
INTERPOSED(3, connect)(int fd, const sockaddr *address, socklen_t length) {
    Socket *const socket = sockets.at(fd);
    if (socket == nullptr || length < sizeof(address->sa_family) ||
        !base::may_be_memory(address, sizeof(address->sa_family)) || address->sa_family != AF_UNSPEC) {
        return LIBC(connect)(fd, address, length);
    }
    socket->before_disconnect();
    const int result = LIBC(connect)(fd, address, length);
    if (result == 0) {
        socket->was_disconnected();
    }
    return result;
}

INTERPOSED(2, shutdown)(int fd, int how) noexcept {
    if (Socket *const socket = sockets.at(fd); socket != nullptr && (how == SHUT_WR || how == SHUT_RDWR)) {
        socket->before_shutdown();
    }
    return LIBC(shutdown)(fd, how);
}

INTERPOSED(5, setsockopt)(int fd, int level, int option, const void *value, socklen_t length) noexcept {
    Socket *const socket = sockets.at(fd);
    if (socket == nullptr) {
        return LIBC(setsockopt)(fd, level, option, value, length);
    }
    if (stays_with(level, option)) {
        socket->stay_for_option();
        (void)carry_preload::keep_in_tcp(*socket, fd);
    }
    std::atomic<int> *const delay = level == IPPROTO_TCP ? socket->delay(option) : nullptr;
    const int result = LIBC(setsockopt)(fd, level, option, value, length);
    if (delay == nullptr || result != 0) {
        return result;
    }
    int wanted = 0;
    std::memcpy(&wanted, value, sizeof(wanted));
    *delay = wanted != 0 ? 1 : 0;
    const int without_delay = option == TCP_NODELAY ? 1 : 0;
    (void)LIBC(setsockopt)(fd, level, option, &without_delay, sizeof(without_delay));
    return 0;
}

INTERPOSED(5, getsockopt)(int fd, int level, int option, void *value, socklen_t *length) noexcept {
    Socket *const socket = sockets.at(fd);
    const int result = LIBC(getsockopt)(fd, level, option, value, length);
    if (socket == nullptr || result != 0 || *length != sizeof(int)) {
        return result;
    }
    std::optional<int> known;
    if (level == SOL_SOCKET && option == SO_ERROR) {
        int kernels = 0;
        std::memcpy(&kernels, value, sizeof(kernels));
        known = socket->take_error(kernels);
    } else if (level == SOL_SOCKET && socket->is_smc()) {
        known = smc_value(fd, option);
    } else if (std::atomic<int> *const delay = level == IPPROTO_TCP ? socket->delay(option) : nullptr;
               delay != nullptr) {
        known = delay->load();
    }
    if (known) {
        std::memcpy(value, &*known, sizeof(*known));
    }
    return result;
}
