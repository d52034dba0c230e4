// SPDX-License-Identifier: BSD-3-Clause
// cli/arguments: parses the words of the command line that have a form of their own, and formats sizes and a
// peer's bytes for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"

namespace cli {

struct Address {
    std::string host;
    std::string port;

    // Returns the address as text, which is HOST:PORT, or [HOST]:PORT for IPv6.
    [[nodiscard]] std::string text() const;
};

// Parses HOST, HOST:PORT, [IPV6] or [IPV6]:PORT. The port is 1 to 65535, and 7204 by default.
[[nodiscard]] Outcome<Address> parse_address(std::string_view text);

// CLI11 takes a word in brackets, such as [::1], for a list where it expects several words. main() puts this
// behind such a word, which no word of a command line can have.
inline constexpr char bracket_mark = '\0';
// Returns the word as it was.
[[nodiscard]] std::string without_mark(std::string word);

// The name of a content is a name of a folder in the server's store, so it has no slash, and begins with no
// dot.
inline constexpr std::size_t longest_name = 40;
[[nodiscard]] bool is_name(std::string_view text);
// Says what a name is, for people.
inline constexpr std::string_view name_form =
    "1 to 40 letters, digits, and . _ - with no dot at the beginning";

// A content of a server.
struct Where {
    Address address;
    std::string name;  // empty when none was given
};

// Parses ADDRESS or ADDRESS/NAME, with an address as parse_address takes it.
[[nodiscard]] Outcome<Where> parse_where(std::string_view text);

// Parses a number of bytes, at least 1, with an optional K, M, G or T (powers of 1024).
[[nodiscard]] Outcome<std::uint64_t> parse_size(std::string_view text);
// Does so with the value of an option, which a failure names.
[[nodiscard]] Outcome<std::uint64_t> parse_size_of(std::string_view option, std::string_view text);

// Returns a function for an option's check(). It returns an error text, which is empty when the value is a
// number from `least` to `most`. (CLI::Range accepts "nan".)
[[nodiscard]] std::function<std::string(const std::string &)> number_between(double least, double most);

// Returns a function for a Validator that an option's transform() takes. It does so for a whole number in
// decimal digits, and leaves no other form of it. (CLI11 takes -1 for the largest number, and so each one
// that is too large, and 010 for 8.)
[[nodiscard]] std::function<std::string(std::string &)> whole_number_between(
    std::uint64_t least, std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

// Returns the candidate that differs from the word by the fewest letters; empty when each differs by more
// than a third of it.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string> &candidates);

// Returns a text like "1.5 GiB"; below 1 KiB like "17 bytes".
[[nodiscard]] std::string format_size(double bytes);

// Returns a peer's text up to the first of the characters that end it. Every other character that is not
// printable becomes a question mark, because the text goes to a terminal.
[[nodiscard]] std::string printable(std::span<const std::byte> text, std::string_view ends);
// Returns a whole text of a peer in this way.
[[nodiscard]] inline std::string shown(std::string_view text) {
    return printable(std::as_bytes(std::span{text}), {});
}

}  // namespace cli
