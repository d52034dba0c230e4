// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/in_force: the limits that are in force, in the library. A unit test may link others in place of
// this file, so it defines nothing else.
#include "soft/ground/limits.hpp"

namespace soft::limits {

namespace {

constexpr InForce constants;

}  // namespace

const InForce &in_force() {
    return constants;
}

}  // namespace soft::limits
