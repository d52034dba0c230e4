// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/reuse: the calls that give the program a new number.
#include "socket_preload/reuse.hpp"

#include <fcntl.h>
#include <rpma/rsocket.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "base/cancelling.hpp"
#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "socket_preload/descriptor_kinds.hpp"

namespace socket_preload {

namespace {

// Ends the rsocket or repoll whose number has become another descriptor's. Meanwhile the number is that of a
// socket without a peer, so that the calls of librsocket on it have no effect.
void forget(int number) {
    const base::Cancelling disabled{PTHREAD_CANCEL_DISABLE};
    const int flags = LIBC(fcntl)(number, F_GETFD);
    const int others = LIBC(fcntl)(number, F_DUPFD_CLOEXEC, 0);
    const int nobodys = LIBC(socket)(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (others >= 0 && nobodys >= 0 && LIBC(dup3)(nobodys, number, O_CLOEXEC) == number) {
        descriptors.set(number, Kind::Own);
        (void)rclose(number);
        (void)LIBC(dup3)(others, number, (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
    }
    for (const int fd : {others, nobodys}) {
        if (fd >= 0) {
            (void)LIBC(close)(fd);
        }
    }
}

}  // namespace

int fresh(int made) {
    if (made < 0 || base::is_in_parents_memory()) {
        return made;
    }
    if (descriptors.kind(made) == Kind::Other) {
        return made;
    }
    const int error = errno;
    const int first = descriptors.first_of_carried(made);
    if (first >= 0 && descriptors.take_away(first)) {
        forget(first);
    }
    descriptors.set(made, Kind::Other);
    errno = error;
    return made;
}

namespace {

// Both numbers of pipe(2) and its like.
int fresh_pair(int result, const int *numbers) {
    if (result == 0) {
        (void)fresh(numbers[0]);
        (void)fresh(numbers[1]);
    }
    return result;
}

}  // namespace

}  // namespace socket_preload

using base::called_by_program;
using base::mode_of;
using socket_preload::fresh;
using socket_preload::fresh_pair;

NAMED(int, open, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return called_by_program([&] { return fresh(LIBC(open)(path, flags, mode)); });
}

NAMED(int, openat, int folder, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return called_by_program([&] { return fresh(LIBC(openat)(folder, path, flags, mode)); });
}

INTERPOSED(2, creat)(const char *path, mode_t mode) {
    return fresh(LIBC(creat)(path, mode));
}

// The same on machines whose file offsets have 64 bits.
static_assert(sizeof(off64_t) == sizeof(off_t));
EXPORTED [[gnu::alias("open")]] int open64(const char *path, int flags, ...);
EXPORTED [[gnu::alias("openat")]] int openat64(int folder, const char *path, int flags, ...);
EXPORTED [[gnu::alias("creat")]] int creat64(const char *path, mode_t mode);

INTERPOSED(1, pipe)(int *numbers) noexcept {
    return fresh_pair(LIBC(pipe)(numbers), numbers);
}

INTERPOSED(2, pipe2)(int *numbers, int flags) noexcept {
    return fresh_pair(LIBC(pipe2)(numbers, flags), numbers);
}

INTERPOSED(4, socketpair)(int domain, int type, int protocol, int *numbers) noexcept {
    return fresh_pair(LIBC(socketpair)(domain, type, protocol, numbers), numbers);
}

INTERPOSED(2, eventfd)(unsigned count, int flags) noexcept {
    return fresh(LIBC(eventfd)(count, flags));
}

INTERPOSED(2, timerfd_create)(clockid_t clock, int flags) noexcept {
    return fresh(LIBC(timerfd_create)(clock, flags));
}

INTERPOSED(3, signalfd)(int fd, const sigset_t *mask, int flags) noexcept {
    return fd == -1 ? fresh(LIBC(signalfd)(fd, mask, flags)) : LIBC(signalfd)(fd, mask, flags);
}

INTERPOSED(0, inotify_init)() noexcept {
    return fresh(LIBC(inotify_init)());
}

INTERPOSED(1, inotify_init1)(int flags) noexcept {
    return fresh(LIBC(inotify_init1)(flags));
}

INTERPOSED(2, memfd_create)(const char *name, unsigned flags) noexcept {
    return fresh(LIBC(memfd_create)(name, flags));
}
