// SPDX-License-Identifier: BSD-3-Clause
// rsocket/option_value: the values of options, as a program passes them.
#pragma once

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/result.hpp"

namespace rsockets {

// Returns the value that a program passed as a T, or nothing when it is too short for one.
template <typename T>
std::optional<T> value_of(const void *value, socklen_t length) {
    if (value == nullptr || length < sizeof(T)) {
        return std::nullopt;
    }
    T copy;
    std::memcpy(&copy, value, sizeof(T));
    return copy;
}

template <typename T>
base::Result<void> give(const T &value, void *to, socklen_t *length) {
    if (to == nullptr || length == nullptr) {
        return base::failure(EFAULT);
    }
    *length = std::min<socklen_t>(*length, sizeof(T));
    std::memcpy(to, &value, *length);
    return {};
}

// Returns the time in a timeval, where 0 means no time-out.
[[nodiscard]] inline base::Result<std::chrono::milliseconds> timeout_of(const void *value, socklen_t length) {
    const auto time = value_of<timeval>(value, length);
    if (!time) {
        return base::failure(EINVAL);
    }
    if (time->tv_usec < 0 || time->tv_usec >= 1000000) {
        return base::failure(EDOM);
    }
    const auto micro = std::chrono::microseconds{time->tv_usec};
    const auto whole = std::chrono::seconds{std::clamp<time_t>(time->tv_sec, 0, INT32_MAX)};
    return std::chrono::ceil<std::chrono::milliseconds>(whole + micro);
}

[[nodiscard]] inline timeval timeval_of(std::chrono::milliseconds timeout) {
    return {.tv_sec = timeout.count() / 1000, .tv_usec = timeout.count() % 1000 * 1000};
}

// Returns a buffer's size: twice what the program asked for, as the kernel does it. getsockopt gives the
// doubled size.
[[nodiscard]] inline std::uint32_t doubled_bytes(int asked) {
    constexpr int most = 1 << 30;
    return static_cast<std::uint32_t>(std::clamp(asked, 1, most / 2)) * 2;
}

}  // namespace rsockets
