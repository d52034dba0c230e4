/* SPDX-License-Identifier: BSD-3-Clause */
/* fails: asserts that a call returns -1 and sets errno. Include it after cmocka.h. */
#ifndef FAILS_H
#define FAILS_H 1

#include <errno.h>

#define assert_fails(call, number)       \
    do {                                 \
        errno = 0;                       \
        assert_int_equal((call), -1);    \
        assert_int_equal(errno, number); \
    } while (0)

#endif
