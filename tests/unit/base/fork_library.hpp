// SPDX-License-Identifier: BSD-3-Clause
// Counts how often a fork has called the hook of the library that the test of base/fork loads.
#pragma once

struct ForkLibraryCalls {
    int before;
    int after_in_parent;
    int after_in_child;
};
