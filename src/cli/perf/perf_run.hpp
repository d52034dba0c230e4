// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_run: measures a load for a time or a number of operations, on RDMA and on TCP in turns.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "cli/histogram.hpp"
#include "cli/perf/perf_path.hpp"
#include "cli/perf/perf_rdma.hpp"

namespace cli {

struct PerfLimits {
    double seconds;            // for each row and each path
    std::uint64_t operations;  // instead of the time, when it is not 0
    double warmup_seconds;     // before the measurement, not recorded
    double timeout_seconds;    // the longest time without progress
    bool polled;
};

struct Measured {
    Histogram latencies;
    double seconds = 0;  // from the first post until the server had the last bytes

    [[nodiscard]] double rate() const {  // operations a second
        return seconds > 0 ? static_cast<double>(latencies.count()) / seconds : 0;
    }
};

struct PerfRow {
    Load load;
    Durability durability = Durability::None;
    Measured rdma;
    Measured tcp;
    std::vector<double> ratios;  // of the two rates, one for each pair, the smallest first
};

// Measures in pairs: RDMA and TCP, then TCP and RDMA, so that the machine's other load affects both. A signal
// ends it early, with the results so far. `progress` is called before each pair.
[[nodiscard]] Outcome<> measure(const DevicePeer &device, const Address &address, const PerfLimits &limits,
                                const std::function<void(unsigned pair, unsigned pairs)> &progress,
                                PerfRow &row);

}  // namespace cli
