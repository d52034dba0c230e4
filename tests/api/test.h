/* SPDX-License-Identifier: BSD-3-Clause */
/* test: what cmocka.h needs before it, and an object that only arguments are checked on. */
#ifndef TEST_H
#define TEST_H 1

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the others, which it needs */
#include <cmocka.h>
#include <librpma.h>

/* A pointer that is not NULL, for calls that must not look behind it. */
static inline void *anything(void) {
    static char bytes[4096];
    return bytes;
}

#define assert_ok(call) assert_int_equal((call), 0)
#define assert_code(call, code) assert_int_equal((call), (code))

#endif
