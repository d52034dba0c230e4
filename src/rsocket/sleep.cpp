// SPDX-License-Identifier: BSD-3-Clause
// rsocket/sleep: see the header.
#include "rsocket/sleep.hpp"

#include <chrono>

#include "rsocket/configuration.hpp"

namespace rsockets {

namespace {

thread_local bool last_was_short = true;

int timeout_of(Deadline deadline) {
    if (!deadline) {
        return -1;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - base::Clock::now());
    return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, INT32_MAX));
}

}  // namespace

bool Sleep::is_likely_short() {
    return last_was_short;
}

Sleep::Sleep(std::shared_ptr<Waiter> waiter) : waiter_{std::move(waiter)} {
    add({.fd = waiter_->fd(), .events = POLLIN, .revents = 0});
}

Sleep::~Sleep() {
    for (const Joined &joined : shards_) {
        const std::scoped_lock lock{joined.shard->mutex()};
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
        const std::scoped_lock lock{shard->mutex()};
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
    const auto begin = base::Clock::now();
    const int ready = ::poll(descriptors_.data(), descriptors_.size(), timeout_of(deadline));
    if (ready < 0) {
        return base::last_failure();
    }
    last_was_short = ready != 0 && base::Clock::now() - begin <= configuration().polling_time;
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

}  // namespace rsockets
