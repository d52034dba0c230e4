// SPDX-License-Identifier: BSD-3-Clause
// base/number: reads a number that is the whole of a text.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace base {

// Returns false for any other text, and for a number that the type does not have.
template <typename Number>
[[nodiscard]] bool read_number(std::string_view text, Number &number, [[maybe_unused]] int radix = 10) {
    const char *const begin = text.data();
    const char *const end = begin + text.size();
    std::from_chars_result read{};
    if constexpr (std::is_floating_point_v<Number>) {
        read = std::from_chars(begin, end, number);
    } else {
        read = std::from_chars(begin, end, number, radix);
    }
    return read.ec == std::errc{} && read.ptr == end;
}

}  // namespace base
