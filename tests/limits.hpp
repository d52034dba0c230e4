// SPDX-License-Identifier: BSD-3-Clause
// The limits of the device (soft/ground/limits) and of its log (base/log), for programs that change them.
// Such a program links test_limits before room_soft.
#pragma once

#include <atomic>
#include <type_traits>
#include <utility>

#include "soft/ground/limits.hpp"

namespace test {

// Returns the limits that are in force in this program.
[[nodiscard]] soft::limits::InForce &limits();

// Returns the number of lines that a place of the log writes in this program.
[[nodiscard]] std::atomic<unsigned> &log_lines_of_place();

// Changes one of limits() until the end of the scope.
template <typename Value>
class ChangedLimit {
public:
    ChangedLimit(Value &limit, std::type_identity_t<Value> value)
        : limit_{limit}, before_{std::exchange(limit, value)} {}
    ChangedLimit(const ChangedLimit &) = delete;
    ChangedLimit &operator=(const ChangedLimit &) = delete;
    ~ChangedLimit() { limit_ = before_; }

private:
    Value &limit_;
    const Value before_;
};

}  // namespace test
