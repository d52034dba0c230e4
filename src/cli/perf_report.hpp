// SPDX-License-Identifier: BSD-3-Clause
// cli/perf_report: what `rpma perf` prints of what it measured: a line of a table, bars, or JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/perf_run.hpp"

namespace cli {

// "write"; how --op names it.
[[nodiscard]] const char *perf_op_text(PerfOp op);
// "write 64K, depth 16".
[[nodiscard]] std::string perf_load_text(const Load &load);

[[nodiscard]] std::string perf_table_head();
[[nodiscard]] std::string perf_table_line(const PerfRow &row);
// The latencies as bars.
[[nodiscard]] std::string perf_bars(const Histogram &latencies);
[[nodiscard]] nlohmann::ordered_json perf_json(const PerfRow &row);

}  // namespace cli
