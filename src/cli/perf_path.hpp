// SPDX-License-Identifier: BSD-3-Clause
// cli/perf_path: what `rpma perf` measures, and the way on which it is done.
#pragma once

#include <cstdint>
#include <span>

#include "cli/failure.hpp"

namespace cli {

enum class PerfOp : std::uint8_t { Write, Read, Flush, Send, Atomic };

// A row of the table is about this.
struct Load {
    PerfOp op;
    std::uint32_t bytes;  // of an operation
    std::uint32_t depth;  // operations under way on each connection
    std::uint32_t connections;

    // Operations under way, numbered from 0: those of one connection follow each other.
    [[nodiscard]] std::uint32_t slots() const { return depth * connections; }
    // Done before the server has it: then a barrier tells when it has all.
    [[nodiscard]] bool is_one_way() const { return op == PerfOp::Write || op == PerfOp::Atomic; }
};

// One thread. Nothing allocates once it is open.
class Path {
public:
    Path() = default;
    Path(const Path &) = delete;
    Path &operator=(const Path &) = delete;
    virtual ~Path() = default;

    // Starts the operation of a slot that has none under way.
    [[nodiscard]] virtual Outcome<> post(std::uint32_t slot) = 0;
    // Starts an operation in its place that is done when the server has all that the connection did before.
    [[nodiscard]] virtual Outcome<> post_barrier(std::uint32_t slot) = 0;
    // Fills in slots whose operation is done; how many. Does not wait.
    [[nodiscard]] virtual Outcome<std::size_t> collect(std::span<std::uint32_t> done) = 0;
    // Sleeps until there may be something to collect, for the timeout at most.
    [[nodiscard]] virtual Outcome<> wait() = 0;
};

}  // namespace cli
