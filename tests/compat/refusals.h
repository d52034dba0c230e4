/* SPDX-License-Identifier: BSD-3-Clause */
/* How a call of verbs or of rdma_cm says that the device does not have it. Include cmocka.h first. */
#pragma once

#include <errno.h>

#define assert_null_and_errno(call)          \
    do {                                     \
        errno = 0;                           \
        assert_null(call);                   \
        assert_int_equal(errno, EOPNOTSUPP); \
    } while (0)
#define assert_minus_one_and_errno(call)     \
    do {                                     \
        errno = 0;                           \
        assert_int_equal((call), -1);        \
        assert_int_equal(errno, EOPNOTSUPP); \
    } while (0)
#define assert_errno(call)                   \
    do {                                     \
        errno = 0;                           \
        (call);                              \
        assert_int_equal(errno, EOPNOTSUPP); \
    } while (0)
#define assert_errno_value(call) assert_int_equal((call), EOPNOTSUPP)
