// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/brief_wait: for how long a thread that serves one group, or the program, waits for the lock
// of another group. The thread that has it was perhaps interrupted, and then it comes back soon; or it waits
// for a page of memory.
#pragma once

#include "base/clock.hpp"

namespace soft {

// It is not thread-safe.
class BriefWait {
public:
    // Returns until when a wait that begins now may last.
    [[nodiscard]] base::Clock::time_point until() const {
        const auto now = base::Clock::now();
        return now < again_at_ ? now : now + longest;
    }
    // Is called when a wait was in vain. Those of the next second end at once.
    void was_in_vain() { again_at_ = base::Clock::now() + pause; }

private:
    static constexpr base::Milliseconds longest{20};
    static constexpr base::Milliseconds pause{1'000};
    base::Clock::time_point again_at_;
};

}  // namespace soft
