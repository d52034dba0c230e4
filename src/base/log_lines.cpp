// SPDX-License-Identifier: BSD-3-Clause
// base/log_lines: how many lines a place of the log writes before it counts. A unit test may link another
// number in place of this file, so it defines nothing else.
#include "base/log.hpp"

unsigned base::log_lines_of_place() {
    return 16;
}
