// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_loads: parses lists strictly.
#include "cli/perf/perf_loads.hpp"

#include <ranges>
#include <string_view>

#include "cli/arguments.hpp"
#include "cli/perf/perf_report.hpp"
#include "cli/protocol/protocol.hpp"

namespace cli {

namespace {

template <typename T, typename Parse>
Outcome<std::vector<T>> parse_list(std::string_view text, const Parse &parse) {
    std::vector<T> values;
    for (const auto part : std::views::split(text, ',')) {
        values.push_back(TRY(parse(std::string_view{part})));
    }
    if (values.empty()) {  // the text was empty
        values.push_back(TRY(parse(text)));
    }
    return values;
}

Outcome<PerfOp> parse_op(std::string_view text) {
    for (const PerfOp op : {PerfOp::Write, PerfOp::Read, PerfOp::Flush, PerfOp::Send, PerfOp::Atomic}) {
        if (text == perf_op_text(op)) {
            return op;
        }
    }
    return failed(Exit::Usage, "--op {}: expected write, read, flush, send or atomic", text);
}

Outcome<std::uint32_t> parse_bounded(const char *option, std::string_view text, std::uint32_t most) {
    const auto value = parse_size(text);
    if (!value || *value > most) {
        return failed(Exit::Usage, "{} {}: expected 1 to {}", option, text, most);
    }
    return static_cast<std::uint32_t>(*value);
}

}  // namespace

Outcome<std::vector<Load>> parse_loads(const std::string &ops, const std::string &sizes,
                                       const std::string &depths, std::uint32_t connections) {
    const auto all_ops = TRY(parse_list<PerfOp>(ops, parse_op));
    const auto all_sizes = TRY(parse_list<std::uint32_t>(
        sizes, [](std::string_view text) { return parse_bounded("--size", text, largest_message); }));
    const auto all_depths = TRY(parse_list<std::uint32_t>(
        depths, [](std::string_view text) { return parse_bounded("--depth", text, most_depth); }));
    std::vector<Load> loads;
    for (const PerfOp op : all_ops) {
        const auto op_sizes = op == PerfOp::Atomic ? std::vector<std::uint32_t>{8} : all_sizes;
        for (const std::uint32_t size : op_sizes) {
            for (const std::uint32_t depth : all_depths) {
                loads.emplace_back(op, size, depth, connections);
            }
        }
    }
    return loads;
}

}  // namespace cli
