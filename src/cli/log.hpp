// SPDX-License-Identifier: BSD-3-Clause
// cli/log: librpma's log, which says why a call failed; its return value alone does not.
#pragma once

#include "cli/failure.hpp"

namespace cli {

// Takes over librpma's log, which would go to the system's: lines are kept to explain failures, and printed
// when verbose. Commands print their own lines with BASE_LOG. Call once, before other threads.
void take_log(bool verbose);

// From now on warnings and errors are printed as they come: for a server, which goes on.
void print_warnings();

// Forgets what was logged: what follows explains what follows.
void clear_log();

// The first error logged since clear_log, else the last warning, behind ": "; nothing when none was logged.
[[nodiscard]] std::string logged_reason();

// ": " and the reason why librpma's call returned `result`: what was logged, else what the number means.
[[nodiscard]] std::string reason_of(int result);

// The outcome of librpma's call that returned `result`; the format says what could not be done.
template <typename... Arguments>
[[nodiscard]] Outcome<> checked(int result, fmt::format_string<Arguments...> format,
                                Arguments &&...arguments) {
    if (result == 0) {
        return {};
    }
    return failed("{}{}", fmt::format(format, std::forward<Arguments>(arguments)...), reason_of(result));
}

}  // namespace cli
