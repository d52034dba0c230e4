// SPDX-License-Identifier: BSD-3-Clause
// cli/histogram: counts how often each latency occurred, in a fixed amount of memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

namespace cli {

// Counts nanoseconds: exactly below 128, above that in classes whose width is 1/64 of their power of two, so
// a result is at most 1.6% too large. More than an hour counts as an hour.
class Histogram {
public:
    static constexpr std::uint64_t largest = (std::uint64_t{1} << 42) - 1;

    void record(std::chrono::nanoseconds latency) {
        const auto value =
            std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(latency.count(), 0)), largest);
        ++counts_[class_of(value)];
        ++count_;
        sum_ += value;
        least_ = std::min(least_, value);
        most_ = std::max(most_, value);
    }

    [[nodiscard]] std::uint64_t count() const { return count_; }
    // These are in nanoseconds; 0 without samples.
    [[nodiscard]] std::uint64_t least() const { return count_ == 0 ? 0 : least_; }
    [[nodiscard]] std::uint64_t most() const { return most_; }
    [[nodiscard]] double mean() const;
    // Returns the value that at least this share (0 to 1) of all samples did not exceed.
    [[nodiscard]] std::uint64_t percentile(double share) const;

    // The samples in steps of 1, 2, 5, 10, 20 ..., from the first to the last step that has any. A class
    // belongs to the step in which it begins.
    struct Step {
        std::uint64_t from;  // nanoseconds
        std::uint64_t to;    // not included
        std::uint64_t count;
    };
    [[nodiscard]] std::vector<Step> steps() const;

private:
    // Each value below 128 is a class of its own; above that there are 64 classes for each power of two.
    static constexpr int class_bits = 6;
    static constexpr std::size_t classes = (42 - class_bits + 1) << class_bits;
    static constexpr std::size_t class_of(std::uint64_t value) {
        const int shift =
            std::max(static_cast<int>(std::bit_width(value)), class_bits + 1) - (class_bits + 1);
        return (static_cast<std::size_t>(shift) << class_bits) + (value >> shift);
    }
    static constexpr std::uint64_t first_of(std::size_t index) {
        const std::size_t shift = std::max<std::size_t>(index >> class_bits, 1) - 1;
        return (index - (shift << class_bits)) << shift;
    }

    std::array<std::uint64_t, classes> counts_{};
    std::uint64_t count_ = 0;
    std::uint64_t sum_ = 0;
    std::uint64_t least_ = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t most_ = 0;
};

}  // namespace cli
