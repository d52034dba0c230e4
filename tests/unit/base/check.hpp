// SPDX-License-Identifier: BSD-3-Clause
// This header includes cmocka and the headers that cmocka needs. Other files include it last, because cmocka
// defines macros with everyday names.
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka needs setjmp, and names from all of the above.
#include <setjmp.h>
// cmocka.h comes last, and does not declare its functions as C.
extern "C" {
#include <cmocka.h>
}
