// SPDX-License-Identifier: BSD-3-Clause
// cli/pace: how long to wait so that bytes go no faster than a rate.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace cli {

// One thread uses it.
class Pace {
public:
    using Clock = std::chrono::steady_clock;

    // Bytes for each second; 0 is no limit.
    explicit Pace(std::uint64_t rate) : rate_{rate} {}

    [[nodiscard]] std::uint64_t rate() const { return rate_; }
    // Counts bytes, and returns when those after them may go. What was not used of the rate does not count.
    [[nodiscard]] Clock::time_point take(std::uint64_t bytes) {
        const auto now = Clock::now();
        if (rate_ == 0) {
            return now;
        }
        const std::chrono::duration<double> lasts{static_cast<double>(bytes) / static_cast<double>(rate_)};
        next_ = std::max(next_, now) + std::chrono::ceil<Clock::duration>(lasts);
        return next_;
    }

private:
    std::uint64_t rate_;
    Clock::time_point next_;
};

}  // namespace cli
