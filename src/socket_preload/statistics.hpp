// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/statistics: the line that `rpma run --sockets --stats` prints about a process when it ends.
#pragma once

#include <rpma/rsocket.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace socket_preload {

// Any number of threads may call.
class Statistics {
public:
    // The socket is about to be closed, or the process to end.
    void rsocket_ends(int fd);
    // These return the result of a call that accepts a socket of the kernel's, or connects it.
    enum class Made { ByLibc, BySystemCall };
    int accepted_by_kernel(int accepted, Made how = Made::ByLibc);
    int connected_by_kernel(int fd, int result, Made how = Made::ByLibc);
    // These return what they are given.
    ssize_t received(ssize_t bytes) {
        add(received_, bytes);
        return bytes;
    }
    ssize_t sent(ssize_t bytes) {
        add(sent_, bytes);
        return bytes;
    }
    // Counts from here on. With `always` this process prints its line even if it had no connection. `file` is
    // the descriptor that gets the line, or -1 for standard error.
    void begin(bool always, int file) {
        wanted_ = true;
        always_ = always;
        file_ = file;
    }
    // Counts from zero again.
    void forget();
    // Writes the line, if the statistics are wanted and there is anything to print. Standard error gets none
    // when it is a socket: a server may have its connection there.
    void tell();

private:
    using Count = std::atomic<std::uint64_t>;
    void add(Count &count, ssize_t more) {
        if (wanted_ && more > 0) {
            count.fetch_add(static_cast<std::uint64_t>(more), std::memory_order_relaxed);
        }
    }
    // Counts a connection of a TCP socket that is no rsocket. A connection that would be carried and yet
    // comes by libc is one of our libraries' (base/past_preloads.cpp).
    void add_of_kernel(int fd, Made how);
    // The connections that are TCP: how many, and for which reasons.
    [[nodiscard]] std::string plain_text() const;

    // Why a connection is TCP: one of RDMA_REASON_, or one of these for a socket that is no rsocket.
    enum { Excluded = RDMA_REASON_ADOPTED + 1, Unseen, reasons };
    bool wanted_ = false;
    bool always_ = false;
    int file_ = -1;
    Count carried_{0};
    std::array<Count, reasons> plain_{};
    Count received_{0};
    Count sent_{0};
};

inline constinit Statistics statistics;

}  // namespace socket_preload
