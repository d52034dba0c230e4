// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/statistics: what `rpma run --sockets --stats` says of a process when it ends.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace socket_preload {

// Any number of threads.
class Statistics {
public:
    // The socket is about to be closed, or the process to end.
    void rsocket_ends(int fd);
    // Returns the result of a call that accepts a socket of the kernel's, or connects it.
    int accepted_by_kernel(int accepted);
    int connected_by_kernel(int fd, int result);
    // These return what they are given.
    ssize_t received(ssize_t bytes) {
        add(received_, bytes);
        return bytes;
    }
    ssize_t sent(ssize_t bytes) {
        add(sent_, bytes);
        return bytes;
    }
    // Counts from here on.
    void begin() { wanted_ = true; }
    // Counts from zero again.
    void forget();
    // Writes a line to standard error, if they are wanted and the process had a connection.
    void tell();

private:
    using Count = std::atomic<std::uint64_t>;
    void add(Count &count, ssize_t more) {
        if (wanted_ && more > 0) {
            count.fetch_add(static_cast<std::uint64_t>(more), std::memory_order_relaxed);
        }
    }

    bool wanted_ = false;
    Count carried_{0};
    Count plain_{0};
    Count received_{0};
    Count sent_{0};
};

inline constinit Statistics statistics;

}  // namespace socket_preload
