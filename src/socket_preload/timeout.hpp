// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/timeout: how long a wait may take, as ppoll, pselect and epoll_pwait2 are told it.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>
#include <ctime>

#include "base/clock.hpp"

namespace socket_preload {

[[nodiscard]] inline bool is_valid(const timespec *timeout) {
    return timeout == nullptr ||
           (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < 1000000000);
}

// In milliseconds, rounded up; -1 stands for no end.
[[nodiscard]] inline int milliseconds_of(const timespec *timeout) {
    if (timeout == nullptr) {
        return -1;
    }
    constexpr time_t most = INT_MAX / 1000 - 1;
    return static_cast<int>(std::min(timeout->tv_sec, most) * 1000 + (timeout->tv_nsec + 999999) / 1000000);
}

// Counts how much time a call has left. A call without a time-out has no time limit.
class TimeLeft {
public:
    explicit TimeLeft(timespec *timeout) : timeout_{timeout} {
        if (timeout != nullptr) {
            end_ = base::Clock::now() + std::chrono::seconds{std::min<time_t>(timeout->tv_sec, INT_MAX)} +
                   std::chrono::nanoseconds{timeout->tv_nsec};
        }
    }
    // Writes the time that is left into the timeout.
    [[nodiscard]] bool is_over() const {
        if (timeout_ == nullptr) {
            return false;
        }
        const auto left = std::max<std::chrono::nanoseconds>(end_ - base::Clock::now(), {});
        const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
        *timeout_ = {.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
        return left.count() == 0;
    }

private:
    timespec *const timeout_;
    base::Clock::time_point end_;
};

}  // namespace socket_preload
