// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/tag: encodes, and decodes with checks.
#include "cli/protocol/tag.hpp"

#include <charconv>
#include <memory>

namespace cli {

std::string tag_text(const Tag &tag) {
    return fmt::format("{}.{}.{:016x}", tag.epoch, tag.number, tag.writer);
}

// A text is a tag's only when it is the one that tag_text() makes.
Outcome<Tag> parse_tag(std::string_view text) {
    Tag tag;
    const char *const end = std::to_address(text.end());
    const auto epoch = std::from_chars(std::to_address(text.begin()), end, tag.epoch);
    const auto number = std::from_chars(epoch.ptr == end ? end : epoch.ptr + 1, end, tag.number);
    (void)std::from_chars(number.ptr == end ? end : number.ptr + 1, end, tag.writer, 16);
    return tag && tag.number <= largest_number && tag_text(tag) == text
               ? Outcome<Tag>{tag}
               : failed("has a tag that is none (expected EPOCH.NUMBER.WRITER)");
}

}  // namespace cli
