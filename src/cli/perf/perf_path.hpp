// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_path: a row that `rpma perf` measures, and the path that it uses, RDMA or TCP.
#pragma once

#include <cstdint>
#include <span>

#include "cli/failure.hpp"

namespace cli {

enum class PerfOp : std::uint8_t { Write, Read, Flush, Send, Atomic };

// A row of the table has this load.
struct Load {
    PerfOp op;
    std::uint32_t bytes;  // of an operation
    std::uint32_t depth;  // operations under way on each connection
    std::uint32_t connections;

    // Returns the number of operations under way. They are numbered from 0; those of one connection have
    // consecutive numbers.
    [[nodiscard]] std::uint32_t slots() const { return depth * connections; }
    // Returns whether an operation is done before the server has its bytes. A barrier then tells when the
    // server has all of them.
    [[nodiscard]] bool is_one_way() const { return op == PerfOp::Write || op == PerfOp::Atomic; }
};

// One thread uses it. No function allocates once it is open.
class Path {
public:
    Path() = default;
    Path(const Path &) = delete;
    Path &operator=(const Path &) = delete;
    virtual ~Path() = default;

    // Starts the operation of a slot without one under way.
    [[nodiscard]] virtual Outcome<> post(std::uint32_t slot) = 0;
    // Starts, in the slot's place, an operation that is done when the server has the bytes of all earlier
    // operations of the connection.
    [[nodiscard]] virtual Outcome<> post_barrier(std::uint32_t slot) = 0;
    // Fills in slots whose operation is done, and returns their number. Does not wait.
    [[nodiscard]] virtual Outcome<std::size_t> collect(std::span<std::uint32_t> done) = 0;
    // Sleeps until there may be a completion to collect, for the timeout at most.
    [[nodiscard]] virtual Outcome<> wait() = 0;
};

}  // namespace cli
