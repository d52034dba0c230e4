// SPDX-License-Identifier: BSD-3-Clause
#include "socket_preload/descriptor_calls.hpp"

#include <fcntl.h>
#include <poll.h>
#include <rpma/rsocket.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdarg>
#include <cstdint>

#include "base/clock.hpp"
#include "base/fork.hpp"
#include "rsocket/process.hpp"
#include "socket_preload/carried.hpp"
#include "socket_preload/inherited.hpp"
#include "socket_preload/libc.hpp"
#include "socket_preload/program_use.hpp"
#include "socket_preload/reuse.hpp"
#include "socket_preload/statistics.hpp"

namespace socket_preload {

namespace {

int fail_with(int error) {
    errno = error;
    return -1;
}

// The socket stays as it is for the other processes that have it.
int close_inherited(int fd) {
    if (!base::is_in_parents_memory()) {
        descriptors.set(fd, Kind::Other);  // first: then the number may be another's
    }
    return LIBC(close)(fd);
}

// Makes `number` another number of the rsocket or repoll that `fd` is, if it is one. Returns number.
int duplicated(int fd, int number) {
    if (number < 0 || static_cast<std::size_t>(number) >= DescriptorKinds::most ||
        base::is_in_parents_memory()) {
        return number;
    }
    if (descriptors.kind(fd) == Kind::Inherited) {
        inherit(number);
        return number;
    }
    int first = fd;
    const bool is_socket = is_rsocket(first);
    if (is_socket || is_repoll(first)) {
        add_number(first, number, is_socket ? Kind::RsocketAgain : Kind::RepollAgain);
    }
    return number;
}

// Makes room at a number that the program dups onto. Returns whether it can: librsocket knows an rsocket by
// one number. It keeps that number as long as there are duplicates, and after the last is closed until other
// threads are out of their calls and all bytes have left.
bool may_replace(int number) {
    const Kind kind = descriptors.kind(number);
    if (kind == Kind::Other || base::is_in_parents_memory()) {
        return true;
    }
    if (descriptors.has_duplicates(number)) {
        return fail_with(EBUSY) == 0;
    }
    if (kind != Kind::Own) {
        (void)close_any(number);
    }
    constexpr auto most = std::chrono::seconds{2};  // as at the end of the process
    for (const auto end = base::Clock::now() + most;
         descriptors.kind(number) == Kind::Own && base::Clock::now() < end;) {
        rsockets::sweep_left_streams();
        (void)LIBC(poll)(nullptr, 0, 1);
    }
    return descriptors.kind(number) != Kind::Own || fail_with(EBUSY) == 0;
}

// socket is the number that librsocket knows of fd.
int fcntl_of_rsocket(int fd, int socket, int command, void *argument) {
    switch (command) {
        case F_GETFL:
            return rfcntl(socket, F_GETFL);
        case F_SETFL:
            return rfcntl(socket, F_SETFL, static_cast<int>(reinterpret_cast<std::intptr_t>(argument)));
        default:
            return LIBC(fcntl)(fd, command, argument);
    }
}

int fcntl_of_any(int fd, int command, void *argument) {
    int socket = fd;
    if (descriptors.kind(fd) == Kind::Own) {
        return fail_with(EBADF);
    }
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
        return duplicated(fd, fresh(LIBC(fcntl)(fd, command, argument)));
    }
    return is_rsocket(socket) ? fcntl_of_rsocket(fd, socket, command, argument)
                              : LIBC(fcntl)(fd, command, argument);
}

int duplicate_onto(int fd, int number, int flags) {
    // A call that fails leaves the descriptor with that number open.
    if (descriptors.kind(fd) == Kind::Own || LIBC(fcntl)(fd, F_GETFD) < 0) {
        return fail_with(EBADF);
    }
    if ((flags & ~O_CLOEXEC) != 0) {
        return fail_with(EINVAL);
    }
    if (!may_replace(number)) {
        return -1;
    }
    return duplicated(fd, LIBC(dup3)(fd, number, flags));
}

// Bytes that can be read now.
int tell_unread(int fd, int *bytes) {
    int listens = 0;
    socklen_t length = sizeof(listens);
    if (rgetsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0) {
        return fail_with(EINVAL);
    }
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

// A descriptor that a system call makes is the kernel's, for librpma's libraries for instance
// (base/past_preloads.cpp).
long make(const base::SystemCall &call) {
    const int fd = static_cast<int>(call.arguments[0]);
    constexpr auto how = Statistics::Made::BySystemCall;
    switch (call.number) {
        case SYS_close:
            return uncancelled([fd] { return close_any(fd); });
        case SYS_connect:
            return statistics.connected_by_kernel(fd, static_cast<int>(call.pass_on()), how);
        case SYS_accept:
        case SYS_accept4:
            return statistics.accepted_by_kernel(fresh(static_cast<int>(call.pass_on())), how);
        case SYS_socket:
        case SYS_epoll_create1:
            return fresh(static_cast<int>(call.pass_on()));
        default:
            return call.copies_process() ? base::forking([&] { return call.pass_on(); }) : call.pass_on();
    }
}

}  // namespace

int close_any(int fd) {
    const Kind kind = descriptors.kind(fd);
    if (kind == Kind::Own) {
        return fail_with(EBADF);  // as if it were not there
    }
    if (kind == Kind::Inherited) {
        return close_inherited(fd);
    }
    return descriptors.first_of_carried(fd) >= 0 ? close_carried(fd, kind) : LIBC(close)(fd);
}

}  // namespace socket_preload

using base::called_by_program;
using socket_preload::descriptors;
using socket_preload::is_rsocket;
using socket_preload::Kind;
using socket_preload::uncancelled;

INTERPOSED(1, close)(int fd) {
    return socket_preload::close_any(fd);
}

// libuv, and therefore Node, closes its descriptors by syscall(2).
NAMED(long, syscall, long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    const base::SystemCall call{number, arguments};
    va_end(arguments);
    return called_by_program([&] { return socket_preload::make(call); });
}

// The descriptors of this library stay open, all others are closed.
INTERPOSED(3, close_range)(unsigned first, unsigned last, int flags) noexcept {
    const base::Cancelling disabled{PTHREAD_CANCEL_DISABLE};
    if (first > last || flags != 0 || base::is_in_parents_memory()) {
        return LIBC(close_range)(first, last, flags);
    }
    unsigned begin = first;
    for (unsigned fd = first; fd <= last && fd < socket_preload::DescriptorKinds::most; ++fd) {
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

NAMED(void, closefrom, int first) {
    (void)close_range(static_cast<unsigned>(first < 0 ? 0 : first), UINT_MAX, 0);
}

INTERPOSED(1, dup)(int fd) noexcept {
    return uncancelled([fd] { return fcntl(fd, F_DUPFD, 0); });
}

INTERPOSED(2, dup2)(int fd, int number) noexcept {
    return fd == number ? LIBC(dup2)(fd, number)
                        : uncancelled([&] { return socket_preload::duplicate_onto(fd, number, 0); });
}

INTERPOSED(3, dup3)(int fd, int number, int flags) noexcept {
    return fd == number ? LIBC(dup3)(fd, number, flags)
                        : uncancelled([&] { return socket_preload::duplicate_onto(fd, number, flags); });
}

NAMED(int, fcntl, int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *const argument = va_arg(arguments, void *);
    va_end(arguments);
    return called_by_program([&] { return socket_preload::fcntl_of_any(fd, command, argument); });
}

static_assert(sizeof(off64_t) == sizeof(off_t));
EXPORTED [[gnu::alias("fcntl")]] int fcntl64(int fd, int command, ...);

NAMED(int, ioctl, int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *const argument = va_arg(arguments, void *);
    va_end(arguments);
    return called_by_program([&] {
        return is_rsocket(fd)
                   ? uncancelled([&] { return socket_preload::ioctl_of_rsocket(fd, request, argument); })
                   : LIBC(ioctl)(fd, request, argument);
    });
}
