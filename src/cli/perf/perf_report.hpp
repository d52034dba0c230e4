// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_report: prints the results of `rpma perf`: a line of a table, bars, or JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/perf/perf_run.hpp"

namespace cli {

// Returns the name of an operation for --op, such as "write".
[[nodiscard]] const char *perf_op_text(PerfOp op);
// Returns a text like "write 64K, depth 16".
[[nodiscard]] std::string perf_load_text(const Load &load);

[[nodiscard]] std::string perf_table_head();
[[nodiscard]] std::string perf_table_line(const PerfRow &row);
// Returns the latencies as bars.
[[nodiscard]] std::string perf_bars(const Histogram &latencies);
[[nodiscard]] nlohmann::ordered_json perf_json(const PerfRow &row);

}  // namespace cli
