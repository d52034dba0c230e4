// SPDX-License-Identifier: BSD-3-Clause
// cli/failure: how a function of the command reports failure: one line of text for a person, which names the
// thing and says what was expected.
#pragma once

#include <fmt/core.h>

#include <cstring>
#include <expected>
#include <string>
#include <utility>

namespace cli {

struct Failure {
    std::string text;
};

template <typename T = void>
using Outcome = std::expected<T, Failure>;

template <typename... Arguments>
[[nodiscard]] std::unexpected<Failure> failed(fmt::format_string<Arguments...> format,
                                              Arguments &&...arguments) {
    return std::unexpected{Failure{fmt::format(format, std::forward<Arguments>(arguments)...)}};
}

// What an errno value means; a static string.
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
