// SPDX-License-Identifier: BSD-3-Clause
// rsocket/sleep: one sleep of a thread, for any number of sockets and shards.
#pragma once

#include <poll.h>

#include <optional>
#include <span>

#include "base/clock.hpp"
#include "rsocket/waiter.hpp"

namespace rsockets {

// When a call gives up waiting. Without a value it never does.
using Deadline = std::optional<base::Clock::time_point>;

// Returns the events that a descriptor of the kernel is ready for now.
[[nodiscard]] inline short polled(int fd, short events) {
    pollfd one{.fd = fd, .events = events, .revents = 0};
    return ::poll(&one, 1, 0) > 0 ? one.revents : short{0};
}

// Calls end() when the scope of a sleep ends, also when the thread is cancelled in the sleep.
template <typename End>
class AfterSleep {
public:
    explicit AfterSleep(End end) : end_{end} {}
    ~AfterSleep() { end_(); }
    AfterSleep(const AfterSleep &) = delete;
    AfterSleep &operator=(const AfterSleep &) = delete;

private:
    const End end_;
};

class Sleep {
public:
    // All that comes from here on ends the sleep. The caller looks for earlier events after add() and join()
    // and before until().
    explicit Sleep(std::shared_ptr<Waiter> waiter);
    ~Sleep();
    Sleep(const Sleep &) = delete;
    Sleep &operator=(const Sleep &) = delete;

    [[nodiscard]] const std::shared_ptr<Waiter> &waiter() const { return waiter_; }
    void add(const pollfd &descriptor) { descriptors_.push_back(descriptor); }
    // The thread sleeps for streams of the shard. Takes the shard's lock.
    [[nodiscard]] base::Result<void> join(const std::shared_ptr<stream::Shard> &shard);
    // Sleeps until there may be something, or until the deadline. Streams that this thread has begun, and
    // that are being connected, go on meanwhile. Takes the locks of the shards. Fails with EINTR.
    [[nodiscard]] base::Result<void> until(Deadline deadline);
    // Returns whether the descriptor, which was added, was ready when the sleep ended.
    [[nodiscard]] bool was_ended_by(int fd) const;

private:
    struct Joined {
        std::shared_ptr<stream::Shard> shard;
        // The index of its events' descriptor, 0 when another thread sleeps on that.
        std::size_t events;
    };

    [[nodiscard]] base::Result<void> poll(Deadline deadline);

    const std::shared_ptr<Waiter> waiter_;
    std::vector<pollfd> descriptors_;
    std::vector<Joined> shards_;
};

}  // namespace rsockets
