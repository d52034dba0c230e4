// SPDX-License-Identifier: BSD-3-Clause
// rsocket/leaving: streams whose rsockets are closed, until what was sent has left.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "base/fd.hpp"
#include "stream/connection.hpp"

namespace rsockets {

// The device sends without anyone's help. Whoever makes or closes an rsocket takes away what is done. Any
// number of threads.
class Leaving {
public:
    // The process's.
    [[nodiscard]] static Leaving &instance();

    // Destroys the stream now, or when what was sent has left, and closes its descriptor then. leave() was
    // called on it.
    void add(std::unique_ptr<stream::Connection> stream, base::Fd fd);
    // Destroys those that are done. Whether there are others.
    bool sweep();
    void after_fork_in_child();

private:
    std::mutex mutex_;
    struct Left {
        base::Fd fd;  // goes after the stream, which uses it
        std::unique_ptr<stream::Connection> stream;
    };
    std::list<Left> streams_;
};

}  // namespace rsockets
