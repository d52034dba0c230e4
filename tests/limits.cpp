// SPDX-License-Identifier: BSD-3-Clause
// See the header. The program begins with the library's values.
#include "limits.hpp"

#include "base/log.hpp"

namespace {

constinit soft::limits::InForce values;
constinit std::atomic<unsigned> lines{16};

}  // namespace

const soft::limits::InForce &soft::limits::in_force() {
    return values;
}

unsigned base::log_lines_of_place() {
    return lines;
}

soft::limits::InForce &test::limits() {
    return values;
}

std::atomic<unsigned> &test::log_lines_of_place() {
    return lines;
}
