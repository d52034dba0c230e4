// SPDX-License-Identifier: BSD-3-Clause
// bench_device [--quick]: compares the soft device with raw TCP on the same loopback, by the median ratio of
// interleaved pairs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench.hpp"

namespace {

struct Plan {
    int pairs = 9;
    std::size_t total_bytes = std::size_t{1} << 30;
    unsigned rounds = 20'000;
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

struct Pairs {
    std::vector<double> baseline;
    std::vector<double> ours;
    std::vector<double> ratio;

    void add(double base, double own) {
        baseline.push_back(base);
        ours.push_back(own);
        ratio.push_back(own / base);
    }
};

void row(const char *what, const Pairs &pairs, double unit, const char *unit_name, const char *bar) {
    const auto [low, high] = std::ranges::minmax(pairs.ratio);
    fmt::print("{:<44} {:>8.2f} {:>8.2f} {:<6} {:>6.2f}  {:.2f} to {:.2f}   {}\n", what,
               median(pairs.ours) / unit, median(pairs.baseline) / unit, unit_name, median(pairs.ratio), low,
               high, bar);
    std::fflush(stdout);
}

void bandwidth(const Plan &plan, bench::Target target, std::size_t block, const char *what, const char *bar) {
    Pairs pairs;
    for (int pair = 0; pair < plan.pairs; ++pair) {
        const double tcp = bench::tcp_bandwidth(block, plan.total_bytes);
        pairs.add(tcp, bench::write_bandwidth(target, plan.total_bytes));
    }
    row(what, pairs, 1e9, "GB/s", bar);
}

void latency(const Plan &plan, bench::Target target, const char *what, const char *bar) {
    Pairs pairs;
    for (int pair = 0; pair < plan.pairs; ++pair) {
        const double tcp = bench::tcp_round_trip(plan.rounds, 8);
        pairs.add(tcp, bench::write_flush(target, plan.rounds));
    }
    row(what, pairs, 1e-6, "us", bar);
}

}  // namespace

int main(int argc, char **argv) {
    Plan plan;
    if (argc == 2 && std::strcmp(argv[1], "--quick") == 0) {
        plan = {.pairs = 1, .total_bytes = std::size_t{64} << 20, .rounds = 500};
    } else if (argc != 1) {
        fmt::print(stderr, "usage: bench_device [--quick]\n");
        return 2;
    }
    const char *const crc = std::getenv("SOFTRDMA_CRC");
    const std::size_t block = bench::best_tcp_block(plan.total_bytes);
    fmt::print("soft device beside raw TCP, 127.0.0.1; CRC32C {}; {} pairs; TCP's best block {} KiB\n",
               crc != nullptr && *crc == '1' ? "on" : "off", plan.pairs, block >> 10);
    fmt::print("{:<44} {:>8} {:>8} {:<6} {:>6}  {:<14} {}\n", "", "ours", "TCP", "", "ratio", "from to",
               "bar");
    bandwidth(plan, bench::Target::Polls, block, "1 MiB writes, depth 16, target polls", ">= 0.85");
    bandwidth(plan, bench::Target::Sleeps, block, "1 MiB writes, depth 16, target asleep", "reported");
    latency(plan, bench::Target::Polls, "8-byte write + flush / round trip, both poll", "<= 1.50");
    latency(plan, bench::Target::Sleeps, "8-byte write + flush / round trip, target asleep", "reported");
    return 0;
}
