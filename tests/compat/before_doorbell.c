/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * before_doorbell.c: send(2), poll(2) and dup3(2), which libcarry-preload.so finds behind itself. Before that
 * library counts the next doorbell, or sends it, or after its next dup3(2), it calls a function of the
 * test's.
 */
#define _GNU_SOURCE 1
#include "before_doorbell.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

void (*before_doorbell)(void);

__attribute__((visibility("default"))) ssize_t send(int fd, const void *bytes, size_t size, int flags) {
    void (*const call)(void) = before_doorbell;
    if (call != NULL && size == 1 && flags == (MSG_DONTWAIT | MSG_NOSIGNAL)) {
        before_doorbell = NULL;
        call();
    }
    return syscall(SYS_sendto, fd, bytes, size, flags, NULL, 0);
}

void (*before_count)(void);

__attribute__((visibility("default"))) int poll(struct pollfd *entries, nfds_t count, int time) {
    void (*const call)(void) = before_count;
    const struct pollfd *volatile const first = entries; /* libc declares that poll(2) only writes */
    if (call != NULL && count == 1 && first->events == 0 && time == 0) {
        before_count = NULL;
        call();
    }
    return (int)syscall(SYS_poll, entries, count, time);
}

void (*after_dup3)(void);

__attribute__((visibility("default"))) int dup3(int fd, int number, int flags) {
    void (*const call)(void) = after_dup3;
    const int made = (int)syscall(SYS_dup3, fd, number, flags);
    if (call != NULL) {
        after_dup3 = NULL;
        call();
    }
    return made;
}

atomic_int memory_calls;

void *__libc_malloc(size_t size);
void __libc_free(void *memory);

__attribute__((visibility("default"))) void *malloc(size_t size) {
    ++memory_calls;
    return __libc_malloc(size);
}

__attribute__((visibility("default"))) void free(void *memory) {
    ++memory_calls;
    __libc_free(memory);
}
