// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/descriptors: close, dup, fcntl, ioctl.
#include "socket_preload/descriptors.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <rpma/rsocket.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>

#include "socket_preload/libc.hpp"
#include "socket_preload/statistics.hpp"

namespace socket_preload {

namespace {

pid_t process = getpid();
[[maybe_unused]] const int follows_forks = pthread_atfork(nullptr, nullptr, [] { process = getpid(); });

int close_carried(int fd) {
    if (in_vfork_child()) {
        return LIBC(close)(fd);
    }
    if (is_rsocket(fd)) {
        statistics.rsocket_ends(fd);
    }
    // From here on the descriptor is the library's, until what was sent has left.
    descriptors.set(fd, Kind::Own);
    return rclose(fd);
}

int refused(int error) {
    errno = error;
    return -1;
}

// Makes room at a number that the program dups onto. Returns whether that may be.
bool may_replace(int number) {
    switch (descriptors.kind(number)) {
        case Kind::Own:
            errno = EBUSY;
            return false;
        case Kind::Rsocket:
        case Kind::Repoll:
            if (!in_vfork_child()) {
                (void)close_carried(number);
            }
            return descriptors.kind(number) != Kind::Own || refused(EBUSY) == 0;
        default:
            return true;
    }
}

int fcntl_of_rsocket(int fd, int command, void *argument) {
    switch (command) {
        case F_GETFL:
            return rfcntl(fd, F_GETFL);
        case F_SETFL:
            return rfcntl(fd, F_SETFL, static_cast<int>(reinterpret_cast<std::intptr_t>(argument)));
        default:
            return LIBC(fcntl)(fd, command, argument);
    }
}

// Bytes that can be read now. A listening socket has none to tell of.
int tell_unread(int fd, int *bytes) {
    const ssize_t unread = rrecv(fd, nullptr, INT_MAX, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    *bytes = unread > 0 ? static_cast<int>(unread) : 0;
    return 0;
}

int ioctl_of_rsocket(int fd, unsigned long request, void *argument) {
    if (request == FIONREAD) {
        return tell_unread(fd, static_cast<int *>(argument));
    }
    if (request == FIONBIO) {
        return rfcntl(fd, F_SETFL, *static_cast<int *>(argument) != 0 ? O_NONBLOCK : 0);
    }
    return LIBC(ioctl)(fd, request, argument);
}

}  // namespace

bool in_vfork_child() {
    return getpid() != process;
}

}  // namespace socket_preload

using socket_preload::descriptors;
using socket_preload::in_vfork_child;
using socket_preload::is_rsocket;
using socket_preload::Kind;

INTERPOSED int close(int fd) {
    switch (descriptors.kind(fd)) {
        case Kind::Own:
            return socket_preload::refused(EBADF);  // as if it were not there
        case Kind::Rsocket:
        case Kind::Repoll:
            return socket_preload::close_carried(fd);
        default:
            return LIBC(close)(fd);
    }
}

// The descriptors of this library stay open, all others are closed.
INTERPOSED int close_range(unsigned first, unsigned last, int flags) noexcept {
    if (first > last || flags != 0 || in_vfork_child()) {
        return LIBC(close_range)(first, last, flags);
    }
    unsigned begin = first;
    for (unsigned fd = first; fd <= last && fd < socket_preload::Descriptors::most; ++fd) {
        if (descriptors.kind(static_cast<int>(fd)) != Kind::Other) {
            if (begin < fd) {
                (void)LIBC(close_range)(begin, fd - 1, 0);
            }
            (void)close(static_cast<int>(fd));
            begin = fd + 1;
        }
    }
    return begin <= last ? LIBC(close_range)(begin, last, 0) : 0;
}

INTERPOSED void closefrom(int first) noexcept {
    (void)close_range(static_cast<unsigned>(first < 0 ? 0 : first), UINT_MAX, 0);
}

INTERPOSED int dup2(int fd, int number) noexcept {
    return fd == number || socket_preload::may_replace(number) ? LIBC(dup2)(fd, number) : -1;
}

INTERPOSED int dup3(int fd, int number, int flags) noexcept {
    return fd == number || socket_preload::may_replace(number) ? LIBC(dup3)(fd, number, flags) : -1;
}

INTERPOSED int fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *const argument = va_arg(arguments, void *);
    va_end(arguments);
    return is_rsocket(fd) ? socket_preload::fcntl_of_rsocket(fd, command, argument)
                          : LIBC(fcntl)(fd, command, argument);
}

INTERPOSED int fcntl64(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *const argument = va_arg(arguments, void *);
    va_end(arguments);
    return is_rsocket(fd) ? socket_preload::fcntl_of_rsocket(fd, command, argument)
                          : LIBC(fcntl64)(fd, command, argument);
}

INTERPOSED int ioctl(int fd, unsigned long request, ...) noexcept {
    va_list arguments;
    va_start(arguments, request);
    void *const argument = va_arg(arguments, void *);
    va_end(arguments);
    return is_rsocket(fd) ? socket_preload::ioctl_of_rsocket(fd, request, argument)
                          : LIBC(ioctl)(fd, request, argument);
}
