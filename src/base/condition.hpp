// SPDX-License-Identifier: BSD-3-Clause
// base/condition: a condition that threads wait for with a mutex.
#pragma once

#include <condition_variable>
#include <mutex>
#include <new>

#include "base/clock.hpp"
#include "base/mutex.hpp"

namespace base {

// Works like std::condition_variable. A wait may end without a reason, so the caller waits in a loop that
// checks the condition.
class Condition {
public:
    void notify_one() { condition_.notify_one(); }
    void notify_all() { condition_.notify_all(); }
    void wait(LastingMutex &mutex) REQUIRES(mutex) {
        std::unique_lock lock{mutex.mutex_, std::adopt_lock};
        condition_.wait(lock);
        static_cast<void>(lock.release());
    }
    // Returns false when the deadline has passed.
    [[nodiscard]] bool wait_until(LastingMutex &mutex, Clock::time_point deadline) REQUIRES(mutex) {
        std::unique_lock lock{mutex.mutex_, std::adopt_lock};
        const auto status = condition_.wait_until(lock, deadline);
        static_cast<void>(lock.release());
        return status == std::cv_status::no_timeout;
    }
    void renew_after_fork() { new (&condition_) std::condition_variable; }

private:
    std::condition_variable condition_;
};

}  // namespace base
