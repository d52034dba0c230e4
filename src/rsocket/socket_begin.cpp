// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: how a stream begins, and its names.
#include "rsocket/socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rsocket/poll.hpp"
#include "stream/address.hpp"

namespace rsockets {

namespace {

int pending_error(int fd) {
    int error = 0;
    socklen_t length = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

bool has_option(int fd, int level, int name) {
    int value = 0;
    socklen_t length = sizeof(value);
    return getsockopt(fd, level, name, &value, &length) == 0 && value != 0;
}

// siw takes ports of TCP: two sockets that both allow it may have one port, as long as one of them listens.
void share_port(int fd) {
    constexpr int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

int family_of(int fd) {
    int family = AF_UNSPEC;
    socklen_t length = sizeof(family);
    (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
    return family;
}

// Returns a copy of a program's address, or nothing when TCP would not take it.
std::optional<sockaddr_storage> copied(const sockaddr *address, socklen_t length) {
    sockaddr_storage copy{};
    if (address == nullptr || length < sizeof(sockaddr_in) || length > sizeof(copy)) {
        return std::nullopt;
    }
    std::memcpy(&copy, address, length);
    const bool known = copy.ss_family == AF_INET || copy.ss_family == AF_INET6;
    return known && length >= stream::length_of(copy) ? std::optional{copy} : std::nullopt;
}

void give_name(const sockaddr_storage &name, sockaddr *address, socklen_t *length) {
    if (address != nullptr && length != nullptr) {
        std::memcpy(address, &name, std::min(*length, stream::length_of(name)));
        *length = stream::length_of(name);
    }
}

}  // namespace

Result<void> Socket::listen(int backlog) {
    const std::scoped_lock lock{mutex_};
    if (state_ != State::Fresh && state_ != State::Listening) {
        return base::failure(EINVAL);
    }
    if (listener_ == nullptr) {
        const auto local = stream::name_of(fd());
        if (!local) {
            return std::unexpected{local.error()};
        }
        if (auto listening = listen_at(*local, backlog); !listening) {
            return listening;
        }
    }
    state_ = State::Listening;
    waiters_.wake();
    return {};
}

Result<void> Socket::listen_at(sockaddr_storage local, int backlog) {
    const bool reuse = has_option(fd(), SOL_SOCKET, SO_REUSEADDR);
    const bool everywhere = stream::is_wildcard(local);
    const auto device =
        everywhere ? Result<const stream::Device *>{nullptr} : stream::Device::of_kernel_at(local);
    if (!device) {
        return std::unexpected{device.error()};
    }
    in_tcp_ = everywhere && stream::Device::soft_may_serve(local.ss_family);
    if (*device == nullptr && !everywhere) {
        const auto soft = stream::Device::soft_at(local);
        if (!soft && soft.error().number != EADDRNOTAVAIL) {
            return std::unexpected{soft.error()};
        }
        in_tcp_ = soft.has_value();
    }
    if (in_tcp_ && ::listen(fd(), backlog) != 0) {
        return base::last_failure();
    }
    if (!in_tcp_) {
        share_port(fd());
        // The socket may have no port yet: bind gives it one.
        if (everywhere &&
            ::bind(fd(), reinterpret_cast<const sockaddr *>(&local), stream::length_of(local)) != 0 &&
            errno != EINVAL) {
            return base::last_failure();
        }
    }
    if (everywhere) {
        local = stream::name_of(fd()).value_or(local);
    }
    auto listener = stream::Listener::at(
        local, {.backlog = backlog,
                .reuse = reuse,
                .v6_only = local.ss_family != AF_INET6 || has_option(fd(), IPPROTO_IPV6, IPV6_V6ONLY)});
    if (!listener) {
        return std::unexpected{listener.error()};
    }
    listener_ = std::move(*listener);
    return in_tcp_ || listener_ != nullptr ? Result<void>{} : base::failure(EADDRNOTAVAIL);
}

Result<std::shared_ptr<AnySocket>> Socket::accept(sockaddr *address, socklen_t *length, int flags) {
    std::unique_lock lock{mutex_};
    if (state_ != State::Listening) {
        return base::failure(EINVAL);
    }
    const Deadline deadline = deadline_of(receive_timeout_);
    if (blocks_) {
        if (auto answered = answer_while_waiting(lock, deadline); !answered) {
            return std::unexpected{answered.error()};
        }
    }
    const auto accepted = until(lock, blocks_, deadline, [&]() -> Result<std::shared_ptr<Socket>> {
        if (listener_ != nullptr) {
            auto asked = next_of_listener(address, length, flags);
            if (asked || asked.error().number != EAGAIN || !in_tcp_) {
                return asked;
            }
        }
        return next_in_tcp(address, length, flags);
    });
    if (!accepted) {
        return std::unexpected{accepted.error()};
    }
    Socket &socket = **accepted;
    socket.receive_timeout_ = receive_timeout_;
    socket.send_timeout_ = send_timeout_;
    socket.receive_low_water_ = receive_low_water_;
    socket.linger_ = linger_;
    socket.options_ = options_;
    if (blocks_ && socket.stream_ == nullptr) {
        unanswered_.push_back(*accepted);
    }
    return *accepted;
}

// The peer of an accepted rsocket waits until the program uses that. A program that accepts the next one
// first waits here, so that the peers are answered here.
Result<void> Socket::answer_while_waiting(std::unique_lock<std::mutex> &lock, Deadline deadline) {
    while (!closed_ && !unanswered_.empty() && listener_readiness(POLLIN) == 0) {
        std::vector<pollfd> entries{{.fd = fd(), .events = POLLIN, .revents = 0}};
        std::erase_if(unanswered_, [&](const std::weak_ptr<Socket> &one) {
            const auto socket = one.lock();
            if (socket == nullptr || !socket->awaits_answer()) {
                return true;
            }
            entries.push_back({.fd = socket->fd(), .events = POLLIN | POLLOUT, .revents = 0});
            return false;
        });
        lock.unlock();
        const auto waited = wait_for(entries, deadline);
        lock.lock();
        if (!waited || *waited == 0) {
            return waited ? Result<void>{} : std::unexpected{waited.error()};
        }
    }
    return {};
}

bool Socket::awaits_answer() {
    const std::scoped_lock lock{mutex_};
    (void)serve();
    const auto in_stream = lock_stream();
    return state_ == State::Accepted || (in_stream && !stream_->answered());
}

Result<std::shared_ptr<Socket>> Socket::next_in_tcp(sockaddr *address, socklen_t *length, int flags) {
    // The kernel's socket never blocks, because the device wants it so: blocks_ says whether the program's
    // calls wait.
    base::Fd fd{accept4(this->fd(), address, length, SOCK_NONBLOCK | (flags & SOCK_CLOEXEC))};
    if (!fd) {
        return errno == ECONNABORTED ? base::failure(EAGAIN) : base::last_failure();
    }
    return std::make_shared<Socket>(std::move(fd), State::Accepted, settings_, (flags & SOCK_NONBLOCK) == 0);
}

Result<std::shared_ptr<Socket>> Socket::next_of_listener(sockaddr *address, socklen_t *length, int flags) {
    const int family = family_of(fd());
    while (true) {
        auto asked = listener_->next();
        if (!asked) {
            return std::unexpected{asked.error()};
        }
        base::Fd fd{::socket(family, SOCK_STREAM | SOCK_NONBLOCK | (flags & SOCK_CLOEXEC), 0)};
        if (!fd) {
            return base::last_failure();
        }
        const auto peer = stream::as_seen_by(family, asked->peer);
        auto accepted =
            std::make_shared<Socket>(std::move(fd), State::Fresh, settings_, (flags & SOCK_NONBLOCK) == 0);
        auto stream = stream::Connection::answer(std::move(*asked), settings_, *accepted);
        if (!stream) {
            return std::unexpected{stream.error()};
        }
        accepted->stream_ = std::move(*stream);
        accepted->state_ = State::Streaming;
        if (const auto in_stream = accepted->lock_stream(); accepted->stream_->error() != 0) {
            continue;  // it was no peer of ours, or has gone
        }
        give_name(peer, address, length);
        return accepted;
    }
}

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
            stream_ = std::move(*stream);
            state_ = State::Streaming;
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
        return true;
    }
    return begin_stream(stream::Side::Active);
}

bool Socket::begin_stream(stream::Side side) {
    // With a waiter made now, this thread can wait for the stream also when no descriptor is left later.
    const auto waiter = Waiter::of_this_thread();
    auto stream =
        waiter ? stream::Connection::begin(side, fd(), settings_, *this) : std::unexpected{waiter.error()};
    if (!stream) {
        // Nobody would answer the peer: for it this end is gone.
        pending_error_ = stream.error().number;
        (void)::shutdown(fd(), SHUT_RDWR);
        state_ = State::Fresh;
        return true;
    }
    stream_ = std::move(*stream);
    state_ = State::Streaming;
    apply_options();
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
