/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that fails as functions of C do. Included after cmocka.h: it asserts. */
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
