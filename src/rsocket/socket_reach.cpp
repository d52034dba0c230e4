// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: connecting, how a stream begins, and its names.
#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/address.hpp"
#include "base/parts.hpp"
#include "rsocket/kernel_socket.hpp"
#include "rsocket/probe.hpp"
#include "rsocket/socket.hpp"
#include "stream/address.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

// Returns the address that the socket's connection to another begins at, with the port that the socket is
// bound to, or 0.
Result<sockaddr_storage> local_address_to(int fd, const sockaddr_storage &remote) {
    auto bound = stream::name_of(fd);
    if (!bound) {
        return bound;
    }
    const auto local = base::without_mapping(*bound);
    if (!base::is_wildcard(local)) {
        return local;
    }
    auto source = stream::source_to(remote);
    if (source) {
        base::set_port(*source, base::port_of(local));
    }
    return source;
}

}  // namespace

// Asks the peer over a device of the kernel where one serves the route's local address, and connects in TCP
// elsewhere.
Result<void> Socket::begin_to_reach(const sockaddr *address, socklen_t length) {
    ends_receiving_ = ends_sending_ = false;
    if (auto remote = copied(address, length)) {
        replay_.begin(fd(), *remote);
        *remote = base::without_mapping(*remote);
        if (const int reason = options_.may_be_tcp() ? why_not_ask(*remote) : RDMA_REASON_NONE;
            reason != RDMA_REASON_NONE) {
            become_plain(reason);
            return {};
        }
        const auto local = local_address_to(fd(), *remote);
        // Where there is no route, TCP's connect says so.
        const auto device =
            local ? stream::Device::of_kernel_at(*local) : Result<const stream::Device *>{nullptr};
        if (!device) {
            return std::unexpected{device.error()};
        }
        if (*device != nullptr) {
            share_port(fd());
            auto stream = stream::Connection::reach(**device, *local, *remote, options_.settings(), *this);
            if (!stream) {
                return std::unexpected{stream.error()};
            }
            mark_as_stream(fd());
            state_ = State::Offered;
            stream_ = std::move(*stream);
            report_stream();
            return {};
        }
    }
    // With this option the kernel holds back the packet that completes the connection until the request goes
    // with it. The peer's server therefore has the request when it accepts.
    constexpr int seconds = 1;
    (void)setsockopt(fd(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds));
    if (::connect(fd(), address, length) != 0 && errno != EINPROGRESS) {
        return base::last_failure();
    }
    state_ = State::Reaching;
    list();
    return {};
}

Result<void> Socket::connect(const sockaddr *address, socklen_t length) {
    base::Lock lock{mutex_};
    (void)serve();
    go_on();
    if (pending_error_ != 0) {
        return base::failure(std::exchange(pending_error_, 0));
    }
    if (state_ == State::Fresh) {
        if (auto begun = begin_to_reach(address, length); !begun) {
            return begun;
        }
        waiters_.wake();
        (void)serve();
        if (!blocks_ && is_open_yet()) {
            return base::failure(EINPROGRESS);
        }
    } else if (is_connecting()) {
        if (!blocks_) {
            return base::failure(EALREADY);
        }
    } else if (state_ != State::Plain) {
        return base::failure(EISCONN);
    }
    if (state_ == State::Plain) {
        lock.unlock();
        return connect_in_tcp(address, length);
    }
    return wait_for_peer();
}

Result<void> Socket::connect_in_tcp(const sockaddr *address, socklen_t length) {
    if (::connect(fd(), address, length) == 0) {
        return {};
    }
    const auto failed = base::last_failure();
    if (failed.error().number != EINPROGRESS && failed.error().number != EALREADY &&
        failed.error().number != EISCONN && failed.error().number != EINTR) {
        const base::Lock lock{mutex_};
        set_kernel_blocking(false);
        state_ = State::Fresh;  // it may connect elsewhere
    }
    return failed;
}

Result<void> Socket::wait_for_peer() {
    // A program that is its own peer answers nobody while it waits here. After time_to_answer it goes on, and
    // what it sends waits for the answer. The time is not shorter, because nobody sends what waits if the
    // program calls nothing of rsockets any more.
    const Deadline deadline = deadline_of(options_.send_timeout());
    const auto wait = [&](Deadline until_then, bool for_answer) {
        mutex_.assert_held();
        return until(blocks_, until_then, [&]() -> Result<void> {
            assert_looks();
            if (pending_error_ != 0) {
                return base::failure(std::exchange(pending_error_, 0));
            }
            if (state_ == State::Fresh) {
                return base::failure(ENOTCONN);  // another call was told why
            }
            const bool is_there = !is_open_yet() || (stream_ != nullptr && stream_->life().was_established());
            return is_there || (!for_answer && state_ != State::Reaching) ? Result<void>{}
                                                                          : base::failure(EAGAIN);
        });
    };
    auto connected = wait(deadline, false);
    if (connected && may_fall_back()) {
        const auto soon = base::Clock::now() + DecisionTime::time_to_answer;
        connected = wait(deadline ? std::min(*deadline, soon) : soon, true);
        if (!connected && connected.error().number == EAGAIN && state_ == State::Offered) {
            return {};
        }
    }
    if (connected || connected.error().number == EAGAIN) {
        connected = wait(deadline, true);
    }
    if (!connected && connected.error().number == EAGAIN) {
        return base::failure(EINPROGRESS);
    }
    return connected;
}

// Looks at TCP's connection. Returns whether it is there, or has failed.
bool Socket::reach() {
    if (polled(fd(), POLLOUT) == 0) {
        return false;
    }
    if (const int error = pending_error(fd()); error != 0) {
        give_up(error);
        return true;
    }
    if (!begin_stream(stream::Side::Active)) {
        return false;
    }
    if (may_fall_back()) {
        decision_time_.await_answer();
        const StreamLock in_stream{stream_};
        stream_->early_sends().begin();
    }
    return true;
}

namespace {

// Returns why a connection that failed so is to be TCP; RDMA_REASON_NONE: it is not.
int reason_of(int error) {
    switch (error) {
        case ECONNREFUSED:
            return RDMA_REASON_PEER_REFUSED;
        case ETIMEDOUT:
            return RDMA_REASON_PEER_SILENT;
        case ECONNRESET:
        case EPROTO:
            return RDMA_REASON_PEER_SPEAKS_TCP;
        default:
            return RDMA_REASON_NONE;  // not the peer's doing, or it speaks another version
    }
}

}  // namespace

bool Socket::take_answer() {
    int error = 0;
    bool is_tcp = may_fall_back();
    bool is_stream = false;
    {
        const StreamLock in_stream{stream_};
        is_stream = stream_->life().was_established();
        error = stream_->life().error();
        is_tcp = is_tcp && !stream_->life().was_accepted();
    }
    if (is_stream) {
        become_stream();
        decision_time_.await_no_answer();
        forget_tcp(base::without_mapping(replay_.server()));
        list();
        return false;
    }
    if (error == 0 && is_tcp && decision_time_.is_answer_late()) {
        decision_time_.await_no_answer();
        // An rsocket that is only slow has as long as the device gives it. With Probe::Known it was one when
        // it was asked, and may listen no more.
        const bool is_rsocket =
            configuration().probe == Probe::Known || is_known(base::without_mapping(replay_.server()));
        error = is_rsocket ? 0 : ETIMEDOUT;
    }
    if (error == 0) {
        return false;
    }
    if (const int reason = is_tcp ? reason_of(error) : RDMA_REASON_NONE; reason != RDMA_REASON_NONE) {
        fall_back(reason);
    } else {
        give_up(error);
    }
    return true;
}

void Socket::give_up(int error) {
    drop_stream();
    replay_.forget();
    pending_error_ = error;
    state_ = State::Fresh;
    list();
}

void Socket::drop_stream() {
    if (stream_ != nullptr) {
        {
            const StreamLock in_stream{stream_};
            stream_->forget_observer();
        }
        stream_.reset();
        if (registry::Live *const live = entry_.live(); live != nullptr) {
            *live = {};  // the stream has written it
        }
    }
    decision_time_.await_no_answer();
    decision_time_.drop_timer();
    replay_.disconnect(fd());
    options_.of_kernel().apply(fd());
}

void Socket::fall_back(int reason) {
    {
        const StreamLock in_stream{stream_};
        replay_.keep_all(stream_->early_sends().take());
    }
    drop_stream();
    // An rsocket's server that closes what it has accepted, and not used, drops the connection as well.
    const auto server = base::without_mapping(replay_.server());
    if (reason != RDMA_REASON_PEER_REFUSED && !is_known(server)) {
        remember_tcp(server);
    }
    reason_ = reason;
    state_ = State::Replaying;
    if (const auto begun = replay_.connect(fd()); !begun) {
        give_up(begun.error().number);
    }
    list();
}

bool Socket::replay() {
    if (polled(fd(), POLLOUT) == 0) {
        return false;
    }
    const int failed = pending_error(fd());
    const auto sent = failed == 0 ? replay_.send(fd()) : base::failure(failed);
    if (!sent && failed == 0 && sent.error().number == EAGAIN) {
        return false;
    }
    if (!sent) {
        give_up(sent.error().number);
        return true;
    }
    if (ends_receiving_) {
        (void)::shutdown(fd(), SHUT_RD);
    }
    if (ends_sending_) {
        (void)::shutdown(fd(), SHUT_WR);
    }
    become_plain(reason_);
    return true;
}

Result<std::size_t> Socket::keep_for_replay(std::span<const iovec> parts) {
    if (ends_sending_) {
        return base::failure(EPIPE);
    }
    const auto most = static_cast<std::size_t>(buffer_bytes(&stream::Settings::send_bytes));
    return replay_.keep(parts, most);
}

bool Socket::begin_stream(stream::Side side) {
    if (lose_to_another()) {
        return true;
    }
    const bool asks = side == stream::Side::Active;
    state_ = asks ? State::Offered : State::Streaming;  // a child that is forked meanwhile has lost it
    mark_as_stream(fd());
    // With a waiter made now, this thread can wait for the stream also when no descriptor is left later.
    const auto waiter = Waiter::of_this_thread();
    auto stream = waiter ? stream::Connection::begin(side, fd(), options_.settings(), *this)
                         : std::unexpected{waiter.error()};
    if (!stream) {
        // The kernel says why there is no connection any more. Otherwise nobody would answer the peer.
        const int gone = pending_error(fd());
        const int error = gone != 0 ? gone : stream.error().number;
        asks ? give_up(error) : lose_peer(error);
        return true;
    }
    stream_ = std::move(*stream);
    if (!asks) {
        become_stream();
    }
    report_stream();
    options_.of_kernel().apply(fd());  // the device has set options of its own
    return true;
}

void Socket::lose_peer(int error) {
    pending_error_ = error;
    (void)::shutdown(fd(), SHUT_RDWR);
    state_ = State::Fresh;
    list();
}

Result<void> Socket::name(End end, sockaddr *address, socklen_t *length) {
    const base::Lock lock{mutex_};
    if (const StreamLock in_stream{stream_}) {
        const auto known = end == End::Local ? stream_->local_name() : stream_->peer_name();
        if (known) {
            if (address == nullptr || length == nullptr) {
                return base::failure(EFAULT);
            }
            give_name(stream::as_seen_by(family_of(fd()), *known), address, length);
            return {};
        }
    }
    return AnySocket::name(end, address, length);
}

}  // namespace rsockets
