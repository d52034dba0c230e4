// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/timeout: how long a wait may take, as ppoll, pselect and epoll_pwait2 are told it.
#pragma once

#include <algorithm>
#include <climits>
#include <ctime>

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

}  // namespace socket_preload
