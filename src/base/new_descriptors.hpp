// SPDX-License-Identifier: BSD-3-Clause
// base/new_descriptors: the functions of libc's that make a descriptor, where the preloads of sockets stand
// in front of them. One file of each preload includes it, and has a `fresh` in scope, which takes the result
// of such a call and returns it.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdarg>

#include "base/interpose.hpp"

// NOLINTBEGIN(misc-definitions-in-headers,cert-dcl59-cpp): one file of each library includes it

namespace {

// Takes both numbers of pipe(2) and its like.
int fresh_pair(int result, const int *numbers) {
    if (result == 0) {
        (void)fresh(numbers[0]);
        (void)fresh(numbers[1]);
    }
    return result;
}

}  // namespace

NAMED(int, open, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = base::mode_of(flags, arguments);
    va_end(arguments);
    return base::called_by_program([&] { return fresh(LIBC(open)(path, flags, mode)); });
}

NAMED(int, openat, int folder, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = base::mode_of(flags, arguments);
    va_end(arguments);
    return base::called_by_program([&] { return fresh(LIBC(openat)(folder, path, flags, mode)); });
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

// NOLINTEND(misc-definitions-in-headers,cert-dcl59-cpp)
