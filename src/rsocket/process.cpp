// SPDX-License-Identifier: BSD-3-Clause
// rsocket/process: the end of the streams of a process that ends.
#include "rsocket/process.hpp"

#include <atomic>

#include "base/at_exit.hpp"
#include "base/fork.hpp"
#include "rsocket/table.hpp"
#include "stream/leaving.hpp"

namespace rsockets {

namespace {

constinit std::atomic<bool> is_exiting{false};

const base::AtExit<end_streams_with_process> at_exit;

}  // namespace

void end_streams_with_process() {
    if (base::is_in_parents_memory()) {
        return;
    }
    is_exiting = true;
    stream::Leaving::wait_at_exit([] {
        const bool ended = Table::instance().end_with_process();
        return !stream::Leaving::instance().sweep() && ended;
    });
}

void sweep_left_streams() {
    (void)stream::Leaving::instance().sweep();
}

bool process_ends() {
    return is_exiting;
}

}  // namespace rsockets
