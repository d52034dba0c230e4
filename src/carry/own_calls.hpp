// SPDX-License-Identifier: BSD-3-Clause
// carry/own_calls: whether this library may make system calls that the program's own calls do not make.
#pragma once

#include <sched.h>

#include <atomic>

namespace carry {

// False from the time on when a filter of system calls may end the process for such a call.
inline constinit std::atomic<bool> makes_own_calls{true};

// Waits for a moment: another thread may want this processor.
inline void wait_a_moment() {
    if (makes_own_calls.load(std::memory_order_relaxed)) {
        (void)sched_yield();
    } else {
        __builtin_ia32_pause();
    }
}

}  // namespace carry
