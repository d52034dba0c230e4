// SPDX-License-Identifier: BSD-3-Clause
// cli/failure: the failure of a function of the command: one line of text for a person, which names the
// object and the expected value.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <expected>
#include <string>
#include <utility>

namespace cli {

// The exit codes of the command, as in rpma(1).
enum class Exit : int {
    Done = 0,
    Failed = 1,
    Usage = 2,
    NotCommitted = 3,  // a push failed before its commit: the old content stays
    Unknown = 4,       // a push failed at its commit: the old content is the newest, or the new one
    Busy = 5,          // another push is under way
    Refused = 6,       // the server refuses the request
    Unreachable = 7,   // there is no server, or it does not answer
    NotExecutable = 126,
    NotFound = 127,
};

struct Failure {
    std::string text;
    Exit exit = Exit::Failed;
    // With Exit::Unknown, the sequence of the content that may be committed.
    std::uint64_t sequence = 0;
    std::uint32_t checksum = 0;
};

template <typename T = void>
using Outcome = std::expected<T, Failure>;

template <typename... Arguments>
[[nodiscard]] std::unexpected<Failure> failed(fmt::format_string<Arguments...> format,
                                              Arguments &&...arguments) {
    return std::unexpected{Failure{fmt::format(format, std::forward<Arguments>(arguments)...)}};
}

template <typename... Arguments>
[[nodiscard]] std::unexpected<Failure> failed(Exit exit, fmt::format_string<Arguments...> format,
                                              Arguments &&...arguments) {
    return std::unexpected{Failure{fmt::format(format, std::forward<Arguments>(arguments)...), exit}};
}

// Returns the meaning of an errno value, as a static string. A peer that tells of a failure may give none.
[[nodiscard]] inline const char *errno_text(int number) {
    const char *text = number != 0 ? strerrordesc_np(number) : nullptr;
    return text != nullptr ? text : "unknown error";
}

}  // namespace cli

// Gives the value of an Outcome, or returns its failure from the calling function. It is a macro because only
// a macro can do that.
#define TRY(...)                                                                  \
    ({                                                                            \
        auto try_outcome = (__VA_ARGS__);                                         \
        if (!try_outcome) {                                                       \
            return std::unexpected<cli::Failure>{std::move(try_outcome.error())}; \
        }                                                                         \
        *std::move(try_outcome);                                                  \
    })
