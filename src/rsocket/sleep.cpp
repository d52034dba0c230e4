// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket/sleep.hpp"

#include <algorithm>

#include "rsocket/call.hpp"

namespace rsockets {

namespace {

constexpr int tick_ms = 5;  // of a thread that no other can wake

int timeout_of(Deadline deadline, bool ticks) {
    const int left = base::poll_timeout(deadline.value_or(base::Clock::time_point::max()));
    return ticks && (left < 0 || left > tick_ms) ? tick_ms : left;
}

}  // namespace

// A signal's handler that has interrupted a sleep leaves the waiter's descriptor to that, and ticks.
Sleep::Sleep(std::shared_ptr<Waiter> waiter) : waiter_{std::move(waiter)} {
    const int fd = Call::has_interrupted_pause() ? -1 : waiter_->fd();
    add({.fd = fd, .events = POLLIN, .revents = 0});
}

Sleep::~Sleep() {
    for (const Joined &joined : shards_) {
        const base::Lock lock{joined.shard->mutex()};
        joined.shard->end_wait(*waiter_);
    }
}

base::Result<void> Sleep::join(const std::shared_ptr<stream::Shard> &shard) {
    if (std::ranges::find(shards_, shard, &Joined::shard) != shards_.end()) {
        return {};
    }
    shards_.push_back({.shard = nullptr, .events = 0});  // the last that needs memory
    std::vector<int> fds;
    {
        const base::Lock lock{shard->mutex()};
        if (auto begun = shard->begin_wait(*waiter_, fds); !begun) {
            shards_.pop_back();
            return begun;
        }
    }
    shards_.back().shard = shard;
    for (const int fd : fds) {
        add({.fd = fd, .events = POLLIN, .revents = 0});
    }
    shards_.back().events = fds.empty() ? 0 : descriptors_.size() - 1;
    return {};
}

base::Result<void> Sleep::until(Deadline deadline) {
    for (const auto &shard : stream::Shard::expecting()) {
        if (auto joined = join(shard); !joined) {
            return joined;
        }
    }
    return !stream::Shard::serve_expecting() ? poll(deadline) : base::Result<void>{};
}

base::Result<void> Sleep::poll(Deadline deadline) {
    const int timeout = timeout_of(deadline, descriptors_.front().fd < 0);
    const auto sleep = [&] {
        const Call::Pause pause;
        return ::poll(descriptors_.data(), descriptors_.size(), timeout);
    };
    if (sleep() < 0) {
        return base::last_failure();
    }
    if (descriptors_.front().revents != 0) {
        waiter_->clear();
    }
    for (const Joined &joined : shards_) {
        if (joined.events != 0 && descriptors_[joined.events].revents != 0) {
            joined.shard->events_came();
        }
    }
    return {};
}

bool Sleep::was_ended_by(int fd) const {
    return std::ranges::any_of(descriptors_,
                               [fd](const pollfd &one) { return one.fd == fd && one.revents != 0; });
}

}  // namespace rsockets
