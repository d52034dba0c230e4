// SPDX-License-Identifier: BSD-3-Clause
// base/text: small files that administrators write, line by line.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace base {

// Returns the content of the file; nothing when the file does not exist, or cannot be read, which is logged.
[[nodiscard]] std::optional<std::string> text_of_file(const char *path);

// Removes the first word of a line and returns it; an empty one when there is none.
std::string_view take_word(std::string_view &line);

struct Line {
    unsigned number;  // from 1 on
    std::string_view whole;
    std::string_view said;  // without the comment, which begins with a #
};

// Calls use(line) for each line.
template <typename Use>
void for_lines(std::string_view text, Use use) {
    for (unsigned number = 1; !text.empty(); ++number) {
        const auto whole = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(whole.size() + 1, text.size()));
        use(Line{.number = number, .whole = whole, .said = whole.substr(0, whole.find('#'))});
    }
}

}  // namespace base
