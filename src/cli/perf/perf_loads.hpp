// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_loads: the rows that a command line of `rpma perf` asks for.
#pragma once

#include <string>
#include <vector>

#include "cli/perf/perf_path.hpp"

namespace cli {

inline constexpr std::uint32_t most_depth = 1024;
inline constexpr std::uint32_t most_connections = 64;

// Returns each operation with each size at each depth, in the order of these comma-separated lists. An atomic
// write always has 8 bytes.
[[nodiscard]] Outcome<std::vector<Load>> parse_loads(const std::string &ops, const std::string &sizes,
                                                     const std::string &depths, std::uint32_t connections);

}  // namespace cli
