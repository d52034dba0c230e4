// SPDX-License-Identifier: BSD-3-Clause
// cmocka with what it needs, for the tests of base, wire and soft. Include it last: it defines macros with
// everyday names.
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka needs setjmp, and names from all of the above.
#include <setjmp.h>
// Last; it does not say by itself that it is C.
extern "C" {
#include <cmocka.h>
}
