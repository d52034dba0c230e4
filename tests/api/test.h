/* SPDX-License-Identifier: BSD-3-Clause */
/* test: includes cmocka.h with the headers that it needs, and has a pointer for tests of arguments. */
#ifndef TEST_H
#define TEST_H 1

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h comes last, because it needs the other headers. */
#include <cmocka.h>
#include <librpma.h>

/* Returns a pointer that is not NULL. The library must not use the memory behind it. */
static inline void *anything(void) {
    static char bytes[4096];
    return bytes;
}

#define assert_ok(call) assert_int_equal((call), 0)
#define assert_code(call, code) assert_int_equal((call), (code))

#endif
