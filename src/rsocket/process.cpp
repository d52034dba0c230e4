// SPDX-License-Identifier: BSD-3-Clause
// rsocket/process: the end of the streams of a process that ends.
#include "rsocket/process.hpp"

#include <poll.h>

#include <atomic>

#include "base/at_exit.hpp"
#include "base/clock.hpp"
#include "base/fork.hpp"
#include "rsocket/leaving.hpp"
#include "rsocket/table.hpp"

namespace rsockets {

namespace {

// Says how long the end of the process waits for bytes to leave.
constexpr std::chrono::milliseconds exit_timeout{2000};
constexpr int exit_tick_ms = 5;

constinit std::atomic<bool> is_exiting{false};

const base::AtExit<end_streams_with_process> at_exit;

}  // namespace

void end_streams_with_process() {
    if (base::is_in_parents_memory()) {
        return;
    }
    is_exiting = true;
    const auto until = base::Clock::now() + exit_timeout;
    const auto is_done = [] {
        const bool ended = Table::instance().end_with_process();
        return !Leaving::instance().sweep() && ended;
    };
    while (!is_done() && base::Clock::now() < until) {
        (void)::poll(nullptr, 0, exit_tick_ms);
    }
}

bool process_ends() {
    return is_exiting;
}

}  // namespace rsockets
