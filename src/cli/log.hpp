// SPDX-License-Identifier: BSD-3-Clause
// cli/log: librpma's log, which tells the reason why a call failed; the return value alone does not.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "cli/failure.hpp"
#include "cli/outlet.hpp"

namespace cli {

// Takes over librpma's log, which would go to the system's log. Lines are kept to explain failures, and
// printed with `verbose`. Commands print their own lines with BASE_LOG. It is called once, before other
// threads start.
void take_log(bool verbose);

// Prints warnings and errors as they come from now on, with the time, unless the journal of systemd gets the
// lines and notes it itself. A server needs that, because it continues after them. Of librpma the same line
// is printed once a minute.
void print_warnings();

// Returns the outlets of standard error and of what RPMA_LOG names, and the line that tells how many were
// lost.
[[nodiscard]] std::vector<Outlet *> log_outlets();
[[nodiscard]] std::string lost_log_lines(std::uint64_t lines);

// Returns the time of now, in UTC, such as 2026-01-01T00:00:00Z.
[[nodiscard]] std::string time_text();
// Returns such a time in seconds since 1970; nothing when the text is none.
[[nodiscard]] std::optional<std::time_t> seconds_of(const std::string &time);

// Forgets the kept lines, so that later failures are explained by later lines only.
void clear_log();

// Returns ": " and the first error since clear_log, otherwise the last warning; nothing when there was none.
[[nodiscard]] std::string logged_reason();

// Returns ": " and the reason why librpma's call returned `result`: the logged line, otherwise the meaning of
// the number.
[[nodiscard]] std::string reason_of(int result);

// Returns the outcome of librpma's call that returned `result`; the format says what could not be done.
template <typename... Arguments>
[[nodiscard]] Outcome<> checked(int result, fmt::format_string<Arguments...> format,
                                Arguments &&...arguments) {
    if (result == 0) {
        return {};
    }
    return failed("{}{}", fmt::format(format, std::forward<Arguments>(arguments)...), reason_of(result));
}

}  // namespace cli
