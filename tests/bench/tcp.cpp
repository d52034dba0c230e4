// SPDX-License-Identifier: BSD-3-Clause
// bench_tcp best-block BYTES | bandwidth BLOCK BYTES | round-trip ROUNDS BYTES: prints raw TCP's figures for
// scripts, in bytes, bytes a second, and seconds.
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <span>
#include <string_view>

#include "bench.hpp"

namespace {

std::size_t number(const char *text) {
    std::size_t value = 0;
    const auto parsed = std::from_chars(text, text + std::strlen(text), value);
    if (parsed.ec != std::errc{} || *parsed.ptr != '\0' || value == 0) {
        fmt::print(stderr, "bench_tcp: '{}' is no number above 0\n", text);
        std::exit(2);
    }
    return value;
}

}  // namespace

int main(int argc, char **argv) {
    const std::span arguments{argv, static_cast<std::size_t>(argc)};
    const std::string_view what = argc > 2 ? arguments[1] : "";
    if (what == "best-block" && argc == 3) {
        fmt::print("{}\n", bench::best_tcp_block(number(arguments[2])));
    } else if (what == "bandwidth" && argc == 4) {
        fmt::print("{}\n", bench::tcp_bandwidth(number(arguments[2]), number(arguments[3])));
    } else if (what == "round-trip" && argc == 4) {
        fmt::print("{}\n",
                   bench::tcp_round_trip(static_cast<unsigned>(number(arguments[2])), number(arguments[3])));
    } else {
        fmt::print(stderr,
                   "usage: bench_tcp best-block BYTES | bandwidth BLOCK BYTES | round-trip ROUNDS BYTES\n");
        return 2;
    }
    return 0;
}
