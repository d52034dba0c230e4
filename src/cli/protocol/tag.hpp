// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/tag: the place of a content among all that were pushed to several servers under its name.
// There is no I/O here.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/failure.hpp"

namespace cli {

// Tags are ordered by epoch, number and writer. No two pushes have the same.
struct Tag {
    std::uint64_t epoch = 0;   // of the writer (rpma push --epoch)
    std::uint64_t number = 0;  // from 1; 0 is that of a content without a tag
    std::uint64_t writer = 0;  // random for each push

    friend auto operator<=>(const Tag &, const Tag &) = default;
    explicit operator bool() const { return number != 0; }
};

// No push reaches it, and the number after it is one too.
inline constexpr std::uint64_t largest_number = std::uint64_t{1} << 62;

// Returns a text such as "0.12.00c0ffee00c0ffee", whose writer has 16 hexadecimal digits.
[[nodiscard]] std::string tag_text(const Tag &tag);
// Returns the tag of such a text, or why it is none. Any byte may come from a peer or a foreign file.
[[nodiscard]] Outcome<Tag> parse_tag(std::string_view text);

}  // namespace cli
