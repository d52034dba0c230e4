// SPDX-License-Identifier: BSD-3-Clause
// stream/leaving: streams that their programs have closed, until their bytes have left.
#pragma once

#include <functional>
#include <list>
#include <memory>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "stream/connection.hpp"

namespace stream {

// The device sends without a thread of these streams. A thread that makes a stream's descriptor or endpoint
// destroys the streams that are done. Any number of threads may call.
class Leaving {
public:
    // The one that the process has.
    [[nodiscard]] static Leaving &instance();

    // Destroys the stream and closes its descriptor, if it has one, at once or when its bytes have left. The
    // caller has called leave() on the stream.
    void add(std::unique_ptr<Connection> stream, base::Fd fd);
    // Destroys the streams that are done. Returns whether there may be others. It waits for no lock.
    bool sweep();
    // Waits until is_done() returns true, 2 seconds at most. The end of a process waits so for its streams.
    static void wait_at_exit(std::move_only_function<bool()> is_done);
    // The child leaves the parent's streams alone, and closes their descriptors.
    void after_fork_in_child();

private:
    struct Left {
        base::Fd fd;  // goes after the stream, which uses it
        std::unique_ptr<Connection> stream;
    };
    struct Streams {
        base::Mutex mutex;
        std::list<Left> all GUARDED_BY(mutex);
    };
    std::unique_ptr<Streams> streams_ = std::make_unique<Streams>();
};

}  // namespace stream
