/* SPDX-License-Identifier: BSD-3-Clause */
/* forks: GCC 12's sanitizers break the children of a process that has threads, with or without rsockets.
 * clang's sanitizers do not. A test asks here whether it can run. */
#ifndef FORKS_H
#define FORKS_H 1

/* GCC 12's AddressSanitizer does not hold the locks of its allocator while a process forks. Where a thread of
 * the parent has such a lock at that moment, the child waits for it in malloc for ever. */
#if defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#define CHILDREN_HANG_IN_MALLOC true
#else
#define CHILDREN_HANG_IN_MALLOC false
#endif

/* GCC 12's ThreadSanitizer ends a child that makes threads, with "dup thread with used id". */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define CHILDREN_MAKE_NO_THREADS true
#else
#define CHILDREN_MAKE_NO_THREADS false
#endif

/* ThreadSanitizer stops a child that makes threads after a fork with threads (die_after_fork), and sleeps a
 * second before a process ends that has threads, which each such child is to it (atexit_sleep_ms). A test
 * whose children make threads sets the options of ThreadSanitizer with this, once, outside of its functions.
 */
#ifdef __cplusplus
#define SANITIZERS_LINKAGE extern "C"
#else
#define SANITIZERS_LINKAGE
#endif
/* NOLINTBEGIN(bugprone-*,cert-*,modernize-*,readability-*): the name is the sanitizer's. */
#define SET_TSAN_OPTIONS(options)                                                                       \
    SANITIZERS_LINKAGE __attribute__((visibility("default"))) const char *__tsan_default_options(void); \
    const char *__tsan_default_options(void) {                                                          \
        return options;                                                                                 \
    }
/* NOLINTEND(bugprone-*,cert-*,modernize-*,readability-*) */

/* Skips the test when its children would fail. It needs cmocka.h. */
#define skip_where(children_fail)                                                                      \
    do {                                                                                               \
        if (children_fail) {                                                                           \
            print_message("SKIPPED: %s: GCC 12's sanitizer; clang's runs this test (tests/forks.h)\n", \
                          #children_fail);                                                             \
            skip();                                                                                    \
        }                                                                                              \
    } while (0)

#endif
