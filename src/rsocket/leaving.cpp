// SPDX-License-Identifier: BSD-3-Clause
// rsocket/leaving: streams whose rsockets are closed, until what was sent has left.
#include "rsocket/leaving.hpp"

#include <poll.h>

#include <new>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "rsocket/table.hpp"

namespace rsockets {

namespace {

// How long the end of the process waits for what was sent to leave.
constexpr std::chrono::milliseconds exit_timeout{2000};
constexpr int exit_tick_ms = 5;

bool is_done(const stream::Connection &stream) {
    if (stream.inherited()) {
        return true;
    }
    const std::scoped_lock lock{stream.shard()->mutex()};
    (void)stream.shard()->serve();
    return stream.idle();
}

// As the kernel does with sockets that are open: their peers see an end of the stream. What is not sent when
// the process has ended is lost.
// NOLINTNEXTLINE(cppcoreguidelines-special-member-functions): there is one, and it does one thing.
struct AtExit {
    ~AtExit() {
        const auto until = base::Clock::now() + exit_timeout;
        const auto is_done = [] {
            const bool ended = Table::instance().end_with_process();
            return !Leaving::instance().sweep() && ended;
        };
        while (!is_done() && base::Clock::now() < until) {
            (void)::poll(nullptr, 0, exit_tick_ms);
        }
    }
} at_exit;

}  // namespace

// Never destroyed: other threads may be in a call when main() returns.
Leaving &Leaving::instance() {
    static auto *const leaving = new Leaving;
    return *leaving;
}

void Leaving::add(std::unique_ptr<stream::Connection> stream, base::Fd fd) {
    Left left{.fd = std::move(fd), .stream = std::move(stream)};
    if (is_done(*left.stream)) {
        return;
    }
    const std::scoped_lock lock{mutex_};
    try {
        streams_.push_back(std::move(left));
    } catch (const std::bad_alloc &) {
        BASE_LOG(Error, "a stream is cut off before all of it has left: out of memory");
    }
}

// The child leaves the parent's streams alone. A thread that the child does not have may hold the lock.
void Leaving::after_fork_in_child() {
    new (&mutex_) std::mutex;
    streams_.clear();
}

bool Leaving::sweep() {
    const std::scoped_lock lock{mutex_};
    std::erase_if(streams_, [](const Left &left) { return is_done(*left.stream); });
    return !streams_.empty();
}

}  // namespace rsockets
