// SPDX-License-Identifier: BSD-3-Clause
// bench_tcp best-block BYTES | bandwidth BLOCK BYTES | round-trip ROUNDS BYTES | stored ROUNDS BYTES FOLDER:
// prints raw TCP's figures for scripts, in bytes, bytes a second, and seconds.
#include <fmt/format.h>

#include <span>
#include <string_view>

#include "bench.hpp"

int main(int argc, char **argv) {
    const std::span arguments{argv, static_cast<std::size_t>(argc)};
    const std::string_view what = argc > 2 ? arguments[1] : "";
    if (what == "best-block" && argc == 3) {
        fmt::print("{}\n", bench::best_tcp_block(bench::number(arguments[2])));
    } else if (what == "bandwidth" && argc == 4) {
        fmt::print("{}\n", bench::tcp_bandwidth(bench::number(arguments[2]), bench::number(arguments[3])));
    } else if (what == "round-trip" && argc == 4) {
        fmt::print("{}\n", bench::tcp_round_trip(static_cast<unsigned>(bench::number(arguments[2])),
                                                 bench::number(arguments[3])));
    } else if (what == "stored" && argc == 5) {
        fmt::print("{}\n", bench::tcp_stored(static_cast<unsigned>(bench::number(arguments[2])),
                                             bench::number(arguments[3]), arguments[4]));
    } else {
        fmt::print(stderr,
                   "usage: bench_tcp best-block BYTES | bandwidth BLOCK BYTES | round-trip ROUNDS BYTES "
                   "| stored ROUNDS BYTES FOLDER\n");
        return 2;
    }
    return 0;
}
