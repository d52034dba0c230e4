// SPDX-License-Identifier: BSD-3-Clause
// base/clock: monotonic time.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>

namespace base {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Returns how long poll(2) has to wait until then: rounded up, and -1 for time_point::max(), which never
// comes.
[[nodiscard]] inline int poll_timeout(Clock::time_point until) {
    if (until == Clock::time_point::max()) {
        return -1;
    }
    const auto left = std::chrono::ceil<Milliseconds>(until - Clock::now()).count();
    return static_cast<int>(std::clamp<Milliseconds::rep>(left, 0, std::numeric_limits<int>::max()));
}

}  // namespace base
