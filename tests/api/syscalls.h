/* SPDX-License-Identifier: BSD-3-Clause */
/* syscalls: the libraries' calls of syscall(2) come to the program that includes this, in the way that they
 * would come to a preloaded library. It defines _GNU_SOURCE, and before_syscall(). */
#ifndef TESTS_API_SYSCALLS_H
#define TESTS_API_SYSCALLS_H

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns 0, or the errno with which the call fails. */
static int before_syscall(long number, const long given[6]);

__attribute__((visibility("default"))) long syscall(long number, ...) {
    long given[6];
    va_list arguments;
    va_start(arguments, number);
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); ++i) {
        given[i] = va_arg(arguments, long);
    }
    va_end(arguments);
    const int error = before_syscall(number, given);
    if (error != 0) {
        errno = error;
        return -1;
    }
    long (*next)(long, ...) = NULL;
    void *const found = dlsym(RTLD_NEXT, "syscall");
    memcpy(&next, &found, sizeof(next));
    return next(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

#endif
