// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/sockets: how sockets begin and end, their names and options.
#include <fcntl.h>
#include <rpma/rsocket.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/fork.hpp"
#include "rsocket/process.hpp"
#include "socket_preload/bytes.hpp"
#include "socket_preload/configuration.hpp"
#include "socket_preload/descriptor_kinds.hpp"
#include "socket_preload/libc.hpp"
#include "socket_preload/program_use.hpp"
#include "socket_preload/reuse.hpp"
#include "socket_preload/statistics.hpp"

using socket_preload::descriptors;
using socket_preload::ForProgram;
using socket_preload::fresh;
using socket_preload::is_rsocket;
using socket_preload::Kind;
using socket_preload::restarted;
using socket_preload::SleepMask;
using socket_preload::statistics;
using socket_preload::uncancelled;

INTERPOSED(3, socket)(int domain, int type, int protocol) noexcept {
    if (socket_preload::carries(domain, type, protocol)) {
        const ForProgram next{ForProgram::Descriptor::Socket};
        const int fd = uncancelled([&] { return rsocket(domain, type, protocol); });
        // In a handler that has interrupted a call of the library (EDEADLK) the program gets the kernel's
        // socket.
        if (fd >= 0 || (errno != ENOTSUP && errno != EDEADLK)) {
            return descriptors.set_if_made(fd, Kind::Rsocket);
        }
    }
    return fresh(LIBC(socket)(domain, type, protocol));
}

// Many programs and children end so, without the functions that exit(3) calls.
EXPORTED void _exit(int status) {
    const base::Cancelling disabled{PTHREAD_CANCEL_DISABLE};
    if (!base::is_in_parents_memory()) {
        statistics.tell();
        rsockets::end_streams_with_process();
    }
    LIBC(_exit)(status);
    __builtin_unreachable();
}

EXPORTED void _Exit(int status) noexcept {
    _exit(status);
}

INTERPOSED(3, bind)(int fd, const sockaddr *address, socklen_t length) noexcept {
    return is_rsocket(fd) ? uncancelled([&] { return rbind(fd, address, length); })
                          : LIBC(bind)(fd, address, length);
}

INTERPOSED(2, listen)(int fd, int backlog) noexcept {
    return is_rsocket(fd) ? uncancelled([&] { return rlisten(fd, backlog); }) : LIBC(listen)(fd, backlog);
}

INTERPOSED(4, accept4)(int fd, sockaddr *address, socklen_t *length, int flags) {
    if (!is_rsocket(fd)) {
        return statistics.accepted_by_kernel(fresh(LIBC(accept4)(fd, address, length, flags)));
    }
    if ((flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != 0) {
        errno = EINVAL;
        return -1;
    }
    const ForProgram next{ForProgram::Descriptor::Accepted, (flags & SOCK_CLOEXEC) != 0};
    const auto accept_next = [&] {
        const SleepMask sleeps;
        return raccept(fd, address, length);
    };
    const int accepted = descriptors.set_if_made(restarted(fd, SO_RCVTIMEO, accept_next), Kind::Rsocket);
    if (accepted >= 0 && (flags & SOCK_NONBLOCK) != 0) {
        (void)rfcntl(accepted, F_SETFL, O_NONBLOCK);
    }
    return accepted;
}

INTERPOSED(3, accept)(int fd, sockaddr *address, socklen_t *length) {
    return accept4(fd, address, length, 0);
}

INTERPOSED(3, connect)(int fd, const sockaddr *address, socklen_t length) {
    if (!is_rsocket(fd)) {
        return statistics.connected_by_kernel(fd, LIBC(connect)(fd, address, length));
    }
    return restarted(fd, SO_SNDTIMEO, [&] { return rconnect(fd, address, length); });
}

INTERPOSED(2, shutdown)(int fd, int how) noexcept {
    return is_rsocket(fd) ? uncancelled([&] { return rshutdown(fd, how); }) : LIBC(shutdown)(fd, how);
}

INTERPOSED(3, getsockname)(int fd, sockaddr *address, socklen_t *length) noexcept {
    return is_rsocket(fd) ? uncancelled([&] { return rgetsockname(fd, address, length); })
                          : LIBC(getsockname)(fd, address, length);
}

INTERPOSED(3, getpeername)(int fd, sockaddr *address, socklen_t *length) noexcept {
    return is_rsocket(fd) ? uncancelled([&] { return rgetpeername(fd, address, length); })
                          : LIBC(getpeername)(fd, address, length);
}

INTERPOSED(5, getsockopt)(int fd, int level, int name, void *value, socklen_t *length) noexcept {
    return is_rsocket(fd) ? uncancelled([&] { return rgetsockopt(fd, level, name, value, length); })
                          : LIBC(getsockopt)(fd, level, name, value, length);
}

INTERPOSED(5, setsockopt)(int fd, int level, int name, const void *value, socklen_t length) noexcept {
    return is_rsocket(fd) ? uncancelled([&] { return rsetsockopt(fd, level, name, value, length); })
                          : LIBC(setsockopt)(fd, level, name, value, length);
}
