// SPDX-License-Identifier: BSD-3-Clause
// rsocket/sleep: one sleep of a thread, for any number of sockets and shards.
#pragma once

#include <poll.h>

#include <optional>
#include <span>

#include "base/clock.hpp"
#include "rsocket/waiter.hpp"

namespace rsockets {

// When a call gives up waiting; none: never.
using Deadline = std::optional<base::Clock::time_point>;

// The events that a kernel's descriptor is ready for now.
[[nodiscard]] inline short polled(int fd, short events) {
    pollfd one{.fd = fd, .events = events, .revents = 0};
    return ::poll(&one, 1, 0) > 0 ? one.revents : short{0};
}

// Whether a thread looks for work before it sleeps (polling_time). Where it finds none it only keeps the
// processor from those who would make some, perhaps from the very peer: so each time in vain it goes twice as
// often to sleep at once before it tries again.
class Looking {
public:
    [[nodiscard]] static bool is_worth_while();
    static void found(bool something);
};

class Sleep {
public:
    // Begins to sleep. What comes from here on ends it; what came before, the caller looks for after add()
    // and join() and before it sleeps.
    explicit Sleep(std::shared_ptr<Waiter> waiter);
    ~Sleep();
    Sleep(const Sleep &) = delete;
    Sleep &operator=(const Sleep &) = delete;

    [[nodiscard]] const std::shared_ptr<Waiter> &waiter() const { return waiter_; }
    void add(const pollfd &descriptor) { descriptors_.push_back(descriptor); }
    // The thread sleeps for streams of the shard. Takes the shard's lock.
    [[nodiscard]] base::Result<void> join(const std::shared_ptr<stream::Shard> &shard);
    // EINTR.
    [[nodiscard]] base::Result<void> until(Deadline deadline);

private:
    struct Joined {
        std::shared_ptr<stream::Shard> shard;
        // The place of its events' descriptor; 0: another thread sleeps on it.
        std::size_t events;
    };

    const std::shared_ptr<Waiter> waiter_;
    std::vector<pollfd> descriptors_;
    std::vector<Joined> shards_;
};

}  // namespace rsockets
