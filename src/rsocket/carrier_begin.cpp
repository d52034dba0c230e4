// SPDX-License-Identifier: BSD-3-Clause
// rsocket/carrier_begin: how a stream begins: rconnect asks a peer, and raccept answers one.
#include <linux/tcp.h>
#include <netinet/in.h>

#include <cerrno>
#include <utility>

#include "base/address.hpp"
#include "rsocket/carrier.hpp"
#include "rsocket/kernel_socket.hpp"
#include "stream/address.hpp"

namespace rsockets {

namespace {

// Returns the address that the socket's connection to another begins at, with the port that the socket is
// bound to, or 0.
Result<sockaddr_storage> local_address_to(const sockaddr_storage &bound, const sockaddr_storage &remote) {
    const auto local = base::without_mapping(bound);
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

Result<void> Carrier::connect(const sockaddr *address, socklen_t length) {
    const auto bound = stream::name_of(fd());
    if (!bound) {
        return std::unexpected{bound.error()};
    }
    bound_ = base::port_of(*bound) != 0 ? std::optional{*bound} : std::nullopt;
    if (auto remote = copied(address, length)) {
        *remote = base::without_mapping(*remote);
        const auto local = local_address_to(*bound, *remote);
        // If there is no route, TCP's connect reports it.
        const auto device =
            local ? stream::Device::of_kernel_at(*local) : Result<const stream::Device *>{nullptr};
        if (!device) {
            return std::unexpected{device.error()};
        }
        if (*device != nullptr) {
            share_port(fd());
            auto stream = begin_stream(stream::Approach::to(**device, *local, *remote));
            if (!stream) {
                return std::unexpected{stream.error()};
            }
            state_ = State::Connecting;
            take(std::move(*stream));
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
    state_ = State::Connecting;
    list();
    return {};
}

Result<void> Carrier::answer(Result<stream::Approach> approach) {
    state_ = State::Streaming;  // a child that is forked meanwhile has lost it
    auto stream = begin_stream(std::move(approach));
    if (!stream) {
        // The kernel says why there is no connection any more.
        return base::failure(pending_error(fd()) != 0 ? ECONNABORTED : stream.error().number);
    }
    take(std::move(*stream));
    open_stream_.open(*stream_);
    options_.of_kernel().apply(fd());  // the device has set options of its own
    return {};
}

void Carrier::begin() {
    if (state_ == State::Connecting) {
        if (!(stream_ == nullptr ? take_connection() : take_answer())) {
            return;
        }
    } else if (!lose_to_another()) {
        mark_as_stream(fd());
        if (const auto answered = answer(stream::Approach::on_socket(stream::Side::Passive, fd()));
            !answered) {
            fail(answered.error().number == ECONNABORTED ? ECONNRESET : answered.error().number);
        }
    }
    rsocket_.waiters().wake(true);  // they sleep on something else
}

// Looks at TCP's connection, which is there, or has failed.
bool Carrier::take_connection() {
    if (polled(fd(), POLLOUT) == 0) {
        return false;
    }
    int error = pending_error(fd());
    if (error == 0) {
        auto stream = begin_stream(stream::Approach::on_socket(stream::Side::Active, fd()));
        if (stream) {
            take(std::move(*stream));
            options_.of_kernel().apply(fd());  // the device has set options of its own
            return true;
        }
        error = pending_error(fd());  // why there is no connection any more
        error = error != 0 ? error : stream.error().number;
    }
    fail(error);
    return true;
}

bool Carrier::take_answer() {
    int error = 0;
    bool is_stream = false;
    {
        const StreamLock in_stream{stream_};
        is_stream = stream_->life().was_established();
        error = stream_->life().error();
    }
    if (is_stream) {
        state_ = State::Streaming;
        open_stream_.open(*stream_);
        list();
        return false;  // the stream has told of its change
    }
    if (error != 0) {
        fail(error);
    }
    return error != 0;
}

// The device of another process that has the descriptor receives and sends the bytes of the connection.
bool Carrier::lose_to_another() {
    if (!is_marked_as_stream(fd())) {
        return false;
    }
    state_ = State::Lost;
    list();
    return true;
}

Result<Carrier::Stream> Carrier::begin_stream(Result<stream::Approach> approach) {
    // The waiter is made now, so that this thread can also wait for the stream when no descriptor is left
    // later.
    if (const auto waiter = Waiter::of_this_thread(); !waiter) {
        return std::unexpected{waiter.error()};
    }
    return stream::Connection::begin(std::move(approach), options_.settings(), *this);
}

void Carrier::take(Stream taken) {
    stream_ = std::move(taken);
    list();
    const StreamLock in_stream{stream_};
    if (registry::Live *const live = rsocket_.entry().live(); live != nullptr) {
        stream_->report_to(*live);
    }
}

void Carrier::destroy_stream() {
    if (stream_ != nullptr) {
        release().reset();
        if (registry::Live *const live = rsocket_.entry().live(); live != nullptr) {
            *live = {};  // the stream has written it
        }
    }
}

void Carrier::fail(int error) {
    destroy_stream();
    make_unconnected(fd());
    if (bound_) {
        // The kernel keeps a port that was chosen, and forgets one that it chose itself.
        (void)::bind(fd(), reinterpret_cast<const sockaddr *>(&*bound_), base::length_of(*bound_));
    }
    options_.of_kernel().apply(fd());
    pending_error_ = error;
    state_ = State::Fresh;
    list();
}

Result<void> Carrier::begin_wait(Sleep &sleep) {
    rsocket_.waiters().add(sleep.waiter());
    if (stream_ != nullptr) {
        return sleep.join(stream_->shard());
    }
    for (const pollfd &descriptor : watched()) {
        sleep.add(descriptor);
    }
    return {};
}

std::vector<pollfd> Carrier::watched() {
    list_in_child();
    std::vector<pollfd> descriptors;
    listening_.add_descriptor(descriptors);
    const State state = state_;
    if (state != State::Lost && stream_ == nullptr && (state != State::Listening || listening_.is_in_tcp())) {
        const short events = state == State::Connecting ? POLLOUT : POLLIN;
        descriptors.push_back({.fd = fd(), .events = events, .revents = 0});
    }
    return descriptors;
}

}  // namespace rsockets
