// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: connecting, how a stream begins, and its names.
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <utility>

#include "rsocket/kernel_socket.hpp"
#include "rsocket/socket.hpp"

namespace rsockets {

// Returns the address that a connection to another begins at, with the port that the socket is bound to, or
// 0.
Result<sockaddr_storage> Socket::local_address_to(const sockaddr_storage &remote) const {
    auto bound = stream::name_of(fd());
    if (!bound) {
        return bound;
    }
    const auto local = stream::without_mapping(*bound);
    if (!stream::is_wildcard(local)) {
        return local;
    }
    auto source = stream::source_to(remote);
    if (source) {
        stream::set_port(*source, stream::port_of(local));
    }
    return source;
}

// Asks the peer over a device of the kernel where one serves the route's local address, and connects in TCP
// elsewhere.
Result<void> Socket::begin_to_reach(const sockaddr *address, socklen_t length) {
    if (auto remote = copied(address, length)) {
        *remote = stream::without_mapping(*remote);
        const auto local = local_address_to(*remote);
        // Where there is no route, TCP's connect says so.
        const auto device =
            local ? stream::Device::of_kernel_at(*local) : Result<const stream::Device *>{nullptr};
        if (!device) {
            return std::unexpected{device.error()};
        }
        if (*device != nullptr) {
            share_port(fd());
            auto stream = stream::Connection::reach(**device, *local, *remote, settings_, *this);
            if (!stream) {
                return std::unexpected{stream.error()};
            }
            state_ = State::Streaming;
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
    std::unique_lock lock{mutex_};
    (void)serve();
    if (pending_error_ != 0) {
        return base::failure(std::exchange(pending_error_, 0));
    }
    if (state_ == State::Fresh) {
        if (auto begun = begin_to_reach(address, length); !begun) {
            return begun;
        }
        waiters_.wake();
        (void)serve();
        if (!blocks_ && is_connecting()) {
            return base::failure(EINPROGRESS);
        }
    } else if (is_connecting()) {
        if (!blocks_) {
            return base::failure(EALREADY);
        }
    } else {
        return base::failure(state_ == State::Listening ? EINVAL : EISCONN);
    }
    const auto connected = until(lock, blocks_, deadline_of(send_timeout_), [&]() -> Result<void> {
        if (pending_error_ != 0) {
            return base::failure(std::exchange(pending_error_, 0));
        }
        // The stream may have ended since.
        return state_ == State::Streaming && stream_->was_established() ? Result<void>{}
                                                                        : base::failure(EAGAIN);
    });
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
        // Without this the kernel would report the error once more, at the next connect.
        const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
        (void)::connect(fd(), &nobody, sizeof(nobody));
        pending_error_ = error;
        state_ = State::Fresh;
        list();
        return true;
    }
    return begin_stream(stream::Side::Active);
}

bool Socket::begin_stream(stream::Side side) {
    state_ = State::Streaming;  // a child that is forked meanwhile has lost it
    // With a waiter made now, this thread can wait for the stream also when no descriptor is left later.
    const auto waiter = Waiter::of_this_thread();
    auto stream =
        waiter ? stream::Connection::begin(side, fd(), settings_, *this) : std::unexpected{waiter.error()};
    if (!stream) {
        return lose_peer(stream.error().number);  // which nobody would answer
    }
    stream_ = std::move(*stream);
    report_stream();
    apply(options_);  // the device has set options of its own
    return true;
}

bool Socket::lose_peer(int error) {
    pending_error_ = error;
    (void)::shutdown(fd(), SHUT_RDWR);
    state_ = State::Fresh;
    list();
    return true;
}

Result<void> Socket::name(End end, sockaddr *address, socklen_t *length) {
    const std::scoped_lock lock{mutex_};
    if (const auto in_stream = lock_stream()) {
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
