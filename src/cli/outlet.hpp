// SPDX-License-Identifier: BSD-3-Clause
// cli/outlet: where lines go: standard output, standard error, or what RPMA_LOG names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/condition.hpp"
#include "base/mutex.hpp"
#include "cli/failure.hpp"

namespace cli {

// Writes bytes to a descriptor, and waits where the descriptor does not. Blocks. Returns 0 or an errno value.
[[nodiscard]] int write_to(int fd, std::string_view text);

// An outlet writes each line at once, in the thread that has it, and waits for the reader. Between begin()
// and end() a thread of the outlet's own writes, so that a server goes on when a reader has stopped. Lines
// for which there is no room are lost, and so are those after them until the reader has taken what there is;
// the next line tells how many. Any thread may call put(), and one the others.
class Outlet {
public:
    // Writes a line, and blocks. It gets the level of the line in librpma's log, if the line has one.
    using Write = std::function<void(int level, const std::string &line)>;
    // Returns the line that tells how many were lost.
    using Lost = std::function<std::string(std::uint64_t lines)>;

    // The outlet keeps at most so many bytes of lines.
    static constexpr std::size_t most_bytes = std::size_t{1} << 20;
    explicit Outlet(Write write, std::size_t most = most_bytes) : write_{std::move(write)}, most_{most} {}
    Outlet(const Outlet &) = delete;
    Outlet &operator=(const Outlet &) = delete;
    // It is not destroyed while its thread waits for a reader.
    ~Outlet() = default;

    void put(int level, std::string line);
    [[nodiscard]] Outcome<> begin(Lost lost);
    // Waits until all lines are written, and ends the thread. At the deadline it leaves both as they are: the
    // process may end.
    void end(base::Clock::time_point deadline);

private:
    struct Line {
        int level;
        std::string text;
    };
    void run();

    enum class State : std::uint8_t { Direct, Queues, Ends };

    const Write write_;
    const std::size_t most_;
    base::Mutex mutex_;
    base::Condition changed_;
    State state_ GUARDED_BY(mutex_) = State::Direct;
    std::deque<Line> lines_ GUARDED_BY(mutex_);
    std::size_t bytes_ GUARDED_BY(mutex_) = 0;         // of these lines
    std::uint64_t lost_lines_ GUARDED_BY(mutex_) = 0;  // of which no line has told
    Lost lost_;
    std::thread thread_;
};

}  // namespace cli
