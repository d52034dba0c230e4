// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: one rsocket, from rsocket() to rclose().
#include "rsocket/socket.hpp"

#include <algorithm>
#include <cerrno>

#include "rsocket/leaving.hpp"

namespace rsockets {

Socket::~Socket() {
    if (stream_ != nullptr) {
        {
            const auto in_stream = lock_stream();
            stream_->forget_observer();
        }
        Leaving::instance().add(std::move(stream_), take_fd());
    }
}

void Socket::decide_now() {
    if (state_ == State::Reaching ? reach() : decide_by_what_came()) {
        waiters_.wake();  // they sleep on something else
    }
}

bool Socket::is_connecting() const {
    const auto in_stream = lock_stream();
    return state_ == State::Reaching ||
           (state_ == State::Streaming && !stream_->was_established() && stream_->error() == 0);
}

bool Socket::serve() {
    go_on();
    const auto in_stream = lock_stream();
    const bool any = in_stream && stream_->shard()->serve();
    note_failure();
    return any;
}

std::shared_ptr<stream::Shard> Socket::advance() {
    const std::scoped_lock lock{mutex_};
    go_on();
    return stream_ != nullptr && !is_lost() ? stream_->shard() : nullptr;
}

Result<void> Socket::begin_wait(Sleep &sleep, short events) {
    const std::scoped_lock lock{mutex_};
    if (state_ == State::Plain) {
        waiters_.add(sleep.waiter());
        sleep.add({.fd = fd(), .events = events, .revents = 0});
        return {};
    }
    // A stream that began later would be waited for on its TCP socket, which the device's thread reads.
    go_on();
    return begin_wait_locked(sleep);
}

Result<void> Socket::begin_wait_locked(Sleep &sleep) {
    waiters_.add(sleep.waiter());
    if (state_ == State::Streaming) {
        return is_lost() ? Result<void>{} : sleep.join(stream_->shard());
    }
    for (const pollfd &descriptor : descriptors_before_stream()) {
        sleep.add(descriptor);
    }
    return {};
}

std::vector<pollfd> Socket::descriptors_before_stream() {
    list_in_child();
    std::vector<pollfd> descriptors;
    if (listener_ != nullptr) {
        descriptors.push_back({.fd = listener_->fd(), .events = POLLIN, .revents = 0});
    }
    if (state_ != State::Listening || in_tcp_) {
        descriptors.push_back({.fd = fd(),
                               .events = static_cast<short>(state_ == State::Reaching ? POLLOUT : POLLIN),
                               .revents = 0});
    }
    if (const auto timer = decision_timer()) {
        descriptors.push_back(*timer);
    }
    return descriptors;
}

Result<std::vector<pollfd>> Socket::watch(short events) {
    const std::scoped_lock lock{mutex_};
    if (state_ == State::Plain) {
        return std::vector<pollfd>{{.fd = fd(), .events = events, .revents = 0}};
    }
    return state_ == State::Streaming ? std::vector<pollfd>{} : descriptors_before_stream();
}

void Socket::after_fork_in_child() {
    new (&mutex_) base::SmallMutex;
    waiters_.after_fork_in_child();
}

}  // namespace rsockets
