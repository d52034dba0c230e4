// SPDX-License-Identifier: BSD-3-Clause
// conformance: every file of tests includes this header.
#pragma once

#include <span>

#include "ends.hpp"
#include "requests.hpp"

// These come last: cmocka.h defines macros with everyday names, and needs the other three headers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern "C" {
#include <cmocka.h>
}

namespace conformance {

// Each file gives its tests to main() with one of these functions.
std::span<const CMUnitTest> operation_tests();
std::span<const CMUnitTest> scatter_tests();
std::span<const CMUnitTest> order_tests();
std::span<const CMUnitTest> burst_tests();
std::span<const CMUnitTest> immediate_tests();
std::span<const CMUnitTest> shared_receive_tests();
std::span<const CMUnitTest> atomic_tests();
std::span<const CMUnitTest> invalidation_tests();
std::span<const CMUnitTest> rights_tests();
std::span<const CMUnitTest> extended_tests();
std::span<const CMUnitTest> state_tests();
std::span<const CMUnitTest> queue_tests();
std::span<const CMUnitTest> refusal_tests();
std::span<const CMUnitTest> local_error_tests();
std::span<const CMUnitTest> remote_error_tests();
std::span<const CMUnitTest> unexpected_tests();
std::span<const CMUnitTest> channel_tests();
std::span<const CMUnitTest> waiting_tests();
std::span<const CMUnitTest> connection_tests();
std::span<const CMUnitTest> id_tests();
std::span<const CMUnitTest> synchronous_tests();
std::span<const CMUnitTest> listener_tests();
std::span<const CMUnitTest> sleeping_tests();
std::span<const CMUnitTest> process_tests();
std::span<const CMUnitTest> fork_tests();
std::span<const CMUnitTest> memory_tests();
std::span<const CMUnitTest> region_tests();
std::span<const CMUnitTest> window_tests();
std::span<const CMUnitTest> stress_tests();
std::span<const CMUnitTest> by_number_tests();
std::span<const CMUnitTest> xrc_tests();
// These tests wait for time-outs of the device, and have a run of their own.
std::span<const CMUnitTest> timeout_tests();

}  // namespace conformance
