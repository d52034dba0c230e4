// SPDX-License-Identifier: BSD-3-Clause
// cli/failure: how a function of the command reports failure: one line of text for a person, which names the
// thing and says what was expected.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <expected>
#include <string>
#include <utility>

namespace cli {

// The command ends with one of these codes; rpma(1) says the same.
enum class Exit : int {
    Done = 0,
    Failed = 1,
    Usage = 2,
    NotCommitted = 3,  // a push failed on its way: the pool holds what it held
    Unknown = 4,       // a push failed at its commit: the pool holds the old content or the new
    Busy = 5,          // another push is under way
    Refused = 6,       // the server does not give what is asked for
    Unreachable = 7,   // there is no server, or it does not answer
    NotExecutable = 126,
    NotFound = 127,
};

struct Failure {
    std::string text;
    Exit exit = Exit::Failed;
    // With Exit::Unknown: of the content that is there or not.
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

// Says what an errno value means; a static string.
[[nodiscard]] inline const char *errno_text(int number) {
    const char *text = strerrordesc_np(number);
    return text != nullptr ? text : "unknown error";
}

}  // namespace cli

// The value of an Outcome; its failure is returned from the calling function. A macro because only that can
// return.
#define TRY(...)                                                                  \
    ({                                                                            \
        auto try_outcome = (__VA_ARGS__);                                         \
        if (!try_outcome) {                                                       \
            return std::unexpected<cli::Failure>{std::move(try_outcome.error())}; \
        }                                                                         \
        *std::move(try_outcome);                                                  \
    })
