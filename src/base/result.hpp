// SPDX-License-Identifier: BSD-3-Clause
// base/result: the result by which a function inside the project reports failure.
#pragma once

#include <cerrno>
#include <expected>

namespace base {

// A failure, as an errno value. The function that finds a failure logs a text for a person. The code is
// returned up to the C boundary, which translates it once.
struct Error {
    int number;
};

template <typename T>
using Result = std::expected<T, Error>;

using Failure = std::unexpected<Error>;

[[nodiscard]] inline Failure failure(int number) {
    return Failure{Error{number}};
}

// Returns the failure that errno holds right after a system call.
[[nodiscard]] inline Failure last_failure() {
    return failure(errno);
}

}  // namespace base
