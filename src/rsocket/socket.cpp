// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: one rsocket, from rsocket() to rclose().
#include "rsocket/socket.hpp"

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "rsocket/leaving.hpp"

namespace rsockets {

Socket::~Socket() {
    if (stream_ != nullptr) {
        {
            const StreamLock in_stream{stream_};
            stream_->forget_observer();
        }
        Leaving::instance().add(std::move(stream_), take_fd());
    }
}

void Socket::decide_now() {
    const State state = state_;
    if (state == State::Reaching    ? reach()
        : state == State::Offered   ? take_answer()
        : state == State::Replaying ? replay()
                                    : decide_by_what_came()) {
        waiters_.wake(true);  // they sleep on something else
    }
}

bool Socket::is_connecting() const {
    const StreamLock in_stream{stream_};
    return state_ == State::Reaching || state_ == State::Replaying ||
           (state_ == State::Offered && !options_.may_be_tcp() && !stream_->life().was_established());
}

void Socket::become_stream() {
    state_ = State::Streaming;
    open_stream_.open(*stream_);
    decision_time_.drop_timer();
}

bool Socket::serve() {
    go_on();
    const StreamLock in_stream{stream_};
    return in_stream && stream_->serve_shard();
}

std::shared_ptr<stream::Shard> Socket::advance() {
    const base::Lock lock{mutex_};
    go_on();
    return stream_ != nullptr ? stream_->shard() : nullptr;
}

Result<void> Socket::begin_wait(Sleep &sleep, short events) {
    const base::Lock lock{mutex_};
    go_on();
    if (state_ == State::Plain) {
        waiters_.add(sleep.waiter());
        sleep.add({.fd = fd(), .events = events, .revents = 0});
        return {};
    }
    return begin_wait_locked(sleep);
}

Result<void> Socket::begin_wait_locked(Sleep &sleep) {
    waiters_.add(sleep.waiter());
    if (stream_ != nullptr) {
        if (auto joined = sleep.join(stream_->shard()); !joined || state_ == State::Streaming) {
            return joined;
        }
    }
    for (const pollfd &descriptor : descriptors_before_stream().descriptors) {
        sleep.add(descriptor);
    }
    return {};
}

AnySocket::Watched Socket::descriptors_before_stream() {
    list_in_child();
    std::vector<pollfd> descriptors;
    listening_.add_descriptor(descriptors);
    if (!is_lost() && stream_ == nullptr && (state_ != State::Listening || listening_.is_in_tcp())) {
        const bool reads = state_ == State::Listening || state_ == State::Undecided || state_ == State::Fresh;
        descriptors.push_back(
            {.fd = fd(), .events = static_cast<short>(reads ? POLLIN : POLLOUT), .revents = 0});
    }
    const State state = state_;
    std::optional<pollfd> timer;
    if ((state == State::Undecided || state == State::Offered) && options_.may_be_tcp()) {
        timer = decision_time_.timer(state == State::Undecided);
    }
    if (timer) {
        descriptors.push_back(*timer);
    }
    return {.descriptors = std::move(descriptors),
            .timer = timer ? decision_time_.owner_of_timer() : nullptr};
}

Result<AnySocket::Watched> Socket::watch(short events) {
    const base::Lock lock{mutex_};
    if (state_ == State::Plain) {
        return Watched{.descriptors = {{.fd = fd(), .events = events, .revents = 0}}, .timer = nullptr};
    }
    return state_ == State::Streaming ? Watched{} : descriptors_before_stream();
}

base::Failure Socket::lost() {
    if (!std::exchange(loss_told_, true)) {
        BASE_LOG(Warning,
                 "descriptor %d: its stream stays with the process that began it, where it can be used; here "
                 "it gives ECONNRESET",
                 fd());
    }
    return base::failure(ECONNRESET);
}

// It copies numbers, and options that do not change.
Socket::Socket(base::Fd fd, const Socket &parents)
    : AnySocket{std::move(fd)},
      state_{parents.state_ == State::Streaming || parents.state_ == State::Offered ||
                     parents.state_ == State::Replaying ||
                     (parents.listening_.is_at_devices() && !parents.listening_.is_in_tcp())
                 ? State::Lost
                 : parents.state_.load()},
      options_{parents.options_},
      blocks_{parents.blocks_},
      loss_told_{parents.loss_told_},
      pending_error_{parents.pending_error_},
      reason_{parents.reason_},
      decision_time_{parents.decision_time_.in_child()},
      replay_{parents.replay_.in_child()} {
    if (parents.listening_.is_in_tcp()) {
        listening_.begin_in_tcp();
    }
    copy_options(parents);
}

std::shared_ptr<AnySocket> Socket::in_child() const {
    return std::make_shared<Socket>(base::Fd{fd()}, *this);
}

}  // namespace rsockets
