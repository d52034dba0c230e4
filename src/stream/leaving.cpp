// SPDX-License-Identifier: BSD-3-Clause
// stream/leaving: streams that their programs have closed, until their bytes have left.
#include "stream/leaving.hpp"

#include <poll.h>

#include <chrono>
#include <utility>

#include "base/clock.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"

namespace stream {

namespace {

constexpr std::chrono::milliseconds exit_timeout{2000};
constexpr int exit_tick_ms = 5;

bool is_done(const Connection &stream) {
    if (!stream.mutex().try_lock()) {
        return false;
    }
    const base::Lock lock{stream.mutex(), base::adopt};
    (void)stream.serve_shard();
    return stream.idle();
}

}  // namespace

// Never destroyed: other threads may be in a call when main() returns.
Leaving &Leaving::instance() {
    static auto *const leaving = new Leaving;
    return *leaving;
}

void Leaving::add(std::unique_ptr<Connection> stream, base::Fd fd) {
    Left left{.fd = std::move(fd), .stream = std::move(stream)};
    if (is_done(*left.stream)) {
        return;
    }
    const base::Lock lock{streams_->mutex};
    try {
        streams_->all.push_back(std::move(left));
    } catch (const std::bad_alloc &) {
        BASE_LOG(Error, "a stream is cut off before all of it has left: out of memory");
    }
}

void Leaving::after_fork_in_child() {
    // A thread of the parent that holds the lock may be about to change the list.
    if (streams_->mutex.try_lock()) {
        const base::Lock lock{streams_->mutex, base::adopt};
        for (Left &left : streams_->all) {
            base::leave_to_parent(std::move(left.stream));
        }
        streams_->all.clear();
    }
    base::leave_to_parent(std::exchange(streams_, std::make_unique<Streams>()));
}

bool Leaving::sweep() {
    if (!streams_->mutex.try_lock()) {
        return true;
    }
    const base::Lock lock{streams_->mutex, base::adopt};
    std::erase_if(streams_->all, [](const Left &left) { return is_done(*left.stream); });
    return !streams_->all.empty();
}

void Leaving::wait_at_exit(std::move_only_function<bool()> is_done) {
    const auto until = base::Clock::now() + exit_timeout;
    while (!is_done() && base::Clock::now() < until) {
        (void)::poll(nullptr, 0, exit_tick_ms);
    }
}

}  // namespace stream
