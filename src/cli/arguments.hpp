// SPDX-License-Identifier: BSD-3-Clause
// cli/arguments: the words of the command line that have a shape of their own, and sizes printed for people.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"

namespace cli {

struct Address {
    std::string host;
    std::string port;

    // As it was written: HOST:PORT, or [HOST]:PORT for IPv6.
    [[nodiscard]] std::string text() const;
};

// HOST, HOST:PORT, [IPV6] or [IPV6]:PORT; the port is 1 to 65535, and 7204 when there is none.
[[nodiscard]] Outcome<Address> parse_address(std::string_view text);

// A number of bytes of at least 1, with an optional K, M, G or T (powers of 1024).
[[nodiscard]] Outcome<std::uint64_t> parse_size(std::string_view text);

// For an option's check(): what is wrong with its value, empty when that is a number from `least` to `most`.
// (CLI::Range takes "nan".)
[[nodiscard]] std::function<std::string(const std::string &)> number_between(double least, double most);

// The candidate that differs from the word by the fewest letters; empty when each differs by more than a
// third of it.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string> &candidates);

// "1.5 GiB"; below 1 KiB "17 bytes".
[[nodiscard]] std::string format_size(double bytes);

}  // namespace cli
