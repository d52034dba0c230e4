// SPDX-License-Identifier: BSD-3-Clause
// conformance: what every file of tests includes.
#pragma once

#include <span>

#include "ends.hpp"

// Last: cmocka.h defines macros with everyday names, and wants the other three.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern "C" {
#include <cmocka.h>
}

namespace conformance {

// The tests of each file, for main().
std::span<const CMUnitTest> operation_tests();
std::span<const CMUnitTest> connection_tests();

}  // namespace conformance
