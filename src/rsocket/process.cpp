// SPDX-License-Identifier: BSD-3-Clause
// rsocket/process: the end of the streams of a process that ends.
#include "base/at_exit.hpp"
#include "base/fork.hpp"
#include "rsocket/table.hpp"
#include "stream/leaving.hpp"

namespace rsockets {

namespace {

// Ends the streams, as the kernel ends the sockets of a process that ends: their peers see an end of the
// stream. Waits until their bytes have left, two seconds at most; the rest is lost. Has no effect in a child
// of vfork(2).
void end_streams_with_process() {
    if (base::is_in_parents_memory()) {
        return;
    }
    stream::Leaving::wait_at_exit([] {
        const bool ended = Table::instance().end_with_process();
        return !stream::Leaving::instance().sweep() && ended;
    });
}

const base::AtExit<end_streams_with_process> at_exit;

}  // namespace

}  // namespace rsockets
