// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_report: prints one line for each row, of 108 columns.
#include "cli/perf/perf_report.hpp"

#include <fmt/format.h>

#include "cli/report.hpp"

namespace cli {

namespace {

constexpr std::size_t bar_width = 50;

struct Quantile {
    const char *name;
    double share;
};
constexpr std::array quantiles = {Quantile{"p50", 0.5}, Quantile{"p90", 0.9}, Quantile{"p99", 0.99},
                                  Quantile{"p99.9", 0.999}, Quantile{"p99.99", 0.9999}};

// Returns a text of at most six columns.
std::string microseconds(std::uint64_t nanoseconds) {
    const double value = static_cast<double>(nanoseconds) / 1e3;
    if (value >= 1e6) {
        return fmt::format("{:.1f}s", value / 1e6);
    }
    return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 1000 ? 1 : 0);
}

std::string short_size(std::uint64_t bytes) {
    const char *const units[] = {"", "K", "M"};
    unsigned unit = 0;
    for (; unit < 2 && bytes % 1024 == 0; ++unit) {
        bytes /= 1024;
    }
    return fmt::format("{}{}", bytes, units[unit]);
}

std::string in_columns(const std::vector<std::string> &cells) {
    constexpr std::array widths = {0, 5, 6, 7, 7, 7, 7, 7, 7, 7, 7, 10, 8, 9, 7};
    std::string line = fmt::format("{:<7}", cells.front());
    for (std::size_t i = 1; i < cells.size(); ++i) {
        line += fmt::format("{:>{}}", cells[i], widths.at(i));
    }
    return line;
}

// Returns a text like "5us".
std::string step_text(std::uint64_t nanoseconds) {
    const char *const units[] = {"ns", "us", "ms", "s"};
    unsigned unit = 0;
    for (; unit < 3 && nanoseconds >= 1000; ++unit) {
        nanoseconds /= 1000;
    }
    return fmt::format("{}{}", nanoseconds, units[unit]);
}

nlohmann::ordered_json measured_json(const Measured &measured, const Load &load) {
    const Histogram &latencies = measured.latencies;
    nlohmann::ordered_json latency = {
        {"min", latencies.least()}, {"mean", latencies.mean()}, {"max", latencies.most()}};
    for (const Quantile &quantile : quantiles) {
        latency[quantile.name] = latencies.percentile(quantile.share);
    }
    auto steps = nlohmann::ordered_json::array();
    for (const Histogram::Step &step : latencies.steps()) {
        steps.push_back({{"from_ns", step.from}, {"to_ns", step.to}, {"count", step.count}});
    }
    return {{"operations", latencies.count()},
            {"seconds", measured.seconds},
            {"operations_per_second", measured.rate()},
            {"bytes_per_second", measured.rate() * load.bytes},
            {"latency_ns", latency},
            {"histogram", steps}};
}

}  // namespace

const char *perf_op_text(PerfOp op) {
    constexpr std::array names = {"write", "read", "flush", "send", "atomic"};
    return names.at(static_cast<std::size_t>(op));
}

std::string perf_load_text(const Load &load) {
    return fmt::format("{} {}, depth {}", perf_op_text(load.op), short_size(load.bytes), load.depth);
}

std::string perf_table_head() {
    return in_columns({"op", "size", "depth", "min us", "p50", "p90", "p99", "p99.9", "p99.99", "max", "mean",
                       "op/s", "GB/s", "tcp p50", "x tcp"}) +
           "\n";
}

std::string perf_table_line(const PerfRow &row) {
    const Histogram &latencies = row.rdma.latencies;
    std::vector<std::string> cells = {perf_op_text(row.load.op), short_size(row.load.bytes),
                                      std::to_string(row.load.depth), microseconds(latencies.least())};
    for (const Quantile &quantile : quantiles) {
        cells.push_back(microseconds(latencies.percentile(quantile.share)));
    }
    cells.push_back(microseconds(latencies.most()));
    cells.push_back(microseconds(static_cast<std::uint64_t>(latencies.mean())));
    cells.push_back(fmt::format("{:.0f}", row.rdma.rate()));
    cells.push_back(fmt::format("{:.3f}", row.rdma.rate() * row.load.bytes / 1e9));
    cells.push_back(microseconds(row.tcp.latencies.percentile(0.5)));
    cells.push_back(row.ratios.empty() ? "-"
                                       : fmt::format("{:.2f}", row.ratios[(row.ratios.size() - 1) / 2]));
    const bool is_weaker = row.load.op == PerfOp::Flush && row.durability == Durability::None;
    return in_columns(cells) + (is_weaker ? "  not durable\n" : "\n");
}

std::string perf_bars(const Histogram &latencies) {
    std::uint64_t most = 1;
    for (const Histogram::Step &step : latencies.steps()) {
        most = std::max(most, step.count);
    }
    std::string text;
    for (const Histogram::Step &step : latencies.steps()) {
        const double share = static_cast<double>(step.count) / static_cast<double>(latencies.count());
        const auto width = (step.count * bar_width + most - 1) / most;
        text += fmt::format("  {:>5} to {:>5} {:>10} {:6.2f}%  {:#<{}}\n", step_text(step.from),
                            step_text(step.to), step.count, share * 100, "", width);
    }
    return text;
}

nlohmann::ordered_json perf_json(const PerfRow &row) {
    nlohmann::ordered_json json = {{"op", perf_op_text(row.load.op)},
                                   {"bytes", row.load.bytes},
                                   {"depth", row.load.depth},
                                   {"connections", row.load.connections}};
    if (row.load.op == PerfOp::Flush) {
        json["memory"] = durability_text(row.durability);
        json["durable"] = row.durability != Durability::None;
    }
    json.update(measured_json(row.rdma, row.load));
    json["tcp"] = measured_json(row.tcp, row.load);
    const std::size_t pairs = row.ratios.size();
    const auto ratio = [&row](std::size_t place) {
        return row.ratios.empty() ? nlohmann::ordered_json{} : nlohmann::ordered_json(row.ratios[place]);
    };
    json["ratio"] = ratio((pairs - 1) / 2);
    json["ratio_min"] = ratio(0);
    json["ratio_max"] = ratio(pairs - 1);
    json["pairs"] = pairs;
    return json;
}

}  // namespace cli
