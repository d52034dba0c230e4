// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/descriptors: closing, duplicating, fcntl(2) and ioctl(2).
#include <fcntl.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>

#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "base/system_call.hpp"
#include "carry/sockets.hpp"
#include "carry/waits.hpp"
#include "carry_preload/fresh.hpp"
#include "carry_preload/hand_over.hpp"

using carry::Socket;
using carry::sockets;
using carry_preload::fresh;

namespace {

int close_any(int fd) {
    return carry_preload::close_any(fd, [fd] { return LIBC(close)(fd); });
}

// The number is fd's too. libc's streams use the lowest ones past this library.
int is_duplicate(int fd, int number) {
    if (number < 0 || base::is_in_parents_memory()) {
        return number;
    }
    carry::epolls::duplicated(fd, number);
    if (Socket *const socket = sockets.at(number); socket != nullptr && number <= STDERR_FILENO) {
        carry_preload::hand_over_as(*socket, number, number);
    }
    return number;
}

int duplicated(int fd, int number) {
    sockets.duplicated(fd, number);
    return is_duplicate(fd, number);
}

int duplicate_onto(int fd, int number, int flags) {
    if ((flags & ~O_CLOEXEC) != 0) {
        return LIBC(dup3)(fd, number, flags);  // which refuses, and closes nothing
    }
    Socket *const source = sockets.at(fd);
    Socket *const replaced = sockets.at(number);
    const bool is_ours = !base::is_in_parents_memory();
    if (is_ours && (replaced != nullptr || carry::epolls::is_set(number))) {
        if (LIBC(fcntl)(fd, F_GETFD) < 0) {
            return -1;
        }
        carry::epolls::closed(number, sockets.has_more_numbers(number));
    }
    // A child of vfork(2) prepares the standard streams of a program.
    if (!is_ours && source != nullptr && number <= STDERR_FILENO) {
        carry_preload::hand_over_as(*source, fd, number);
    }
    return is_duplicate(fd, sockets.replace(fd, number, [&] { return LIBC(dup3)(fd, number, flags); }));
}

int ioctl_of(Socket &socket, int fd, unsigned long request, void *argument) {
    const int result = LIBC(ioctl)(fd, request, argument);
    if (result != 0) {
        return result;
    }
    int &value = *static_cast<int *>(argument);
    switch (request) {
        case FIONREAD:
            value = socket.readable_bytes(fd);
            break;
        case SIOCOUTQ:
            value = static_cast<int>(
                std::min<std::size_t>(static_cast<unsigned>(value) + socket.unsent(), INT_MAX));
            break;
        case FIONBIO:
            socket.set_blocks(value == 0);
            break;
        case FIOASYNC:
            (void)carry_preload::keep_in_tcp(socket, fd);
            break;
        default:
            break;
    }
    return result;
}

int fcntl_of(Socket &socket, int fd, int command, void *argument) {
    const int result = LIBC(fcntl)(fd, command, argument);
    if (command == F_SETFL && result == 0) {
        const auto flags = static_cast<int>(reinterpret_cast<std::intptr_t>(argument));
        socket.set_blocks((flags & O_NONBLOCK) == 0);
        if ((flags & O_ASYNC) != 0) {
            (void)carry_preload::keep_in_tcp(socket, fd);
        }
    }
    return result;
}

void before_call(const base::SystemCall &call) {
    const bool filters = call.number == SYS_seccomp ? call.arguments[0] <= SECCOMP_SET_MODE_FILTER
                                                    : call.arguments[0] == PR_SET_SECCOMP;
    if (filters) {
        carry_preload::keep_all_in_tcp();
    }
}

long system_call(const base::SystemCall &call) {
    switch (call.number) {
        case SYS_close:
            return close_any(static_cast<int>(call.arguments[0]));
        case SYS_socket:
        case SYS_accept:
        case SYS_accept4:
        case SYS_epoll_create1:
            return fresh(static_cast<int>(call.pass_on()));
        case SYS_unshare:
            return unshare(static_cast<int>(call.arguments[0]));
        case SYS_prctl:
        case SYS_seccomp:
            before_call(call);
            return call.pass_on();
        default:
            if (!call.copies_process()) {
                return call.pass_on();
            }
            const long made = base::forking([&] { return call.pass_on(); });
            sockets.forked(static_cast<pid_t>(made));
            return made;
    }
}

int fcntl_of_any(int fd, int command, void *argument) {
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
        return duplicated(fd, fresh(LIBC(fcntl)(fd, command, argument)));
    }
    Socket *const socket = sockets.at(fd);
    return socket != nullptr ? fcntl_of(*socket, fd, command, argument) : LIBC(fcntl)(fd, command, argument);
}

int ioctl_of_any(int fd, unsigned long request, void *argument) {
    Socket *const socket = sockets.at(fd);
    return socket != nullptr ? ioctl_of(*socket, fd, request, argument) : LIBC(ioctl)(fd, request, argument);
}

}  // namespace

INTERPOSED(1, close)(int fd) {
    return close_any(fd);
}

// libuv closes its descriptors so.
NAMED(long, syscall, long number, ...) {
    va_list list;
    va_start(list, number);
    const base::SystemCall call{number, list};
    va_end(list);
    return base::called_by_program([&] { return system_call(call); });
}

NAMED(int, prctl, int option, ...) {
    va_list list;
    va_start(list, option);
    std::array<unsigned long, 4> rest;
    for (unsigned long &one : rest) {
        one = va_arg(list, unsigned long);
    }
    va_end(list);
    return base::called_by_program([&] {
        if (option == PR_SET_SECCOMP) {
            carry_preload::keep_all_in_tcp();
        }
        return LIBC(prctl)(option, rest[0], rest[1], rest[2], rest[3]);
    });
}

INTERPOSED(3, close_range)(unsigned first, unsigned last, int flags) noexcept {
    constexpr int unshares = CLOSE_RANGE_UNSHARE;
    constexpr int known = CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC;
    if ((flags & unshares) != 0 && first <= last && (flags & ~known) == 0) {
        return unshare(CLONE_FILES) == 0 ? close_range(first, last, flags & ~unshares) : -1;
    }
    if (first > last || flags != 0 || base::is_in_parents_memory()) {
        return LIBC(close_range)(first, last, flags);
    }
    for (std::size_t fd = first; fd <= last && fd < sockets.end(); ++fd) {
        if (sockets.at(static_cast<int>(fd)) != nullptr) {
            (void)close_any(static_cast<int>(fd));
        }
    }
    carry::epolls::closed_between(first, last);
    return LIBC(close_range)(first, last, 0);
}

EXPORTED void closefrom(int first) noexcept {
    (void)close_range(static_cast<unsigned>(first < 0 ? 0 : first), UINT_MAX, 0);
}

INTERPOSED(1, unshare)(int flags) noexcept {
    const bool shares = (flags & CLONE_FILES) != 0 && carry::Process::has_other_threads();
    if (shares) {
        carry_preload::keep_all_in_tcp();
    }
    const int result = LIBC(unshare)(flags);
    if (shares && result == 0) {
        base::note_own_descriptors();
    }
    return result;
}

INTERPOSED(1, dup)(int fd) noexcept {
    return duplicated(fd, fresh(LIBC(dup)(fd)));
}

INTERPOSED(2, dup2)(int fd, int number) noexcept {
    return fd == number ? LIBC(dup2)(fd, number) : duplicate_onto(fd, number, 0);
}

INTERPOSED(3, dup3)(int fd, int number, int flags) noexcept {
    return fd == number ? LIBC(dup3)(fd, number, flags) : duplicate_onto(fd, number, flags);
}

NAMED(int, fcntl, int fd, int command, ...) {
    va_list list;
    va_start(list, command);
    void *const argument = va_arg(list, void *);
    va_end(list);
    return base::called_by_program([&] { return fcntl_of_any(fd, command, argument); });
}

static_assert(sizeof(off64_t) == sizeof(off_t));
EXPORTED [[gnu::alias("fcntl")]] int fcntl64(int fd, int command, ...);

NAMED(int, ioctl, int fd, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *const argument = va_arg(list, void *);
    va_end(list);
    return base::called_by_program([&] { return ioctl_of_any(fd, request, argument); });
}
