// SPDX-License-Identifier: BSD-3-Clause
// base/clock: monotonic time.
#pragma once

#include <chrono>

namespace base {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

}  // namespace base
