// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: listening, and taking those who connect.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>

#include "base/address.hpp"
#include "rsocket/kernel_socket.hpp"
#include "rsocket/probe.hpp"
#include "rsocket/socket.hpp"
#include "rsocket/unanswered.hpp"
#include "stream/address.hpp"

namespace rsockets {

Result<void> Socket::listen(int backlog) {
    const base::Lock lock{mutex_};
    if (state_ != State::Fresh && state_ != State::Listening) {
        return base::failure(EINVAL);
    }
    if (listener_ == nullptr) {
        const State before = state_;
        const auto local = stream::name_of(fd());
        if (!local) {
            return std::unexpected{local.error()};
        }
        if (auto listening = listen_at(*local, backlog); !listening) {
            state_ = before;
            list();
            return listening;
        }
    }
    list();
    waiters_.wake();
    return {};
}

Result<void> Socket::listen_at(sockaddr_storage local, int backlog) {
    const bool reuse = has_option(fd(), SOL_SOCKET, SO_REUSEADDR);
    const bool everywhere = base::is_wildcard(local);
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
    // From listen(2) on TCP lets clients in, and they look in the registry whether this is an rsocket.
    state_ = State::Listening;
    list();
    if (in_tcp_ && ::listen(fd(), backlog) != 0) {
        return base::last_failure();
    }
    if (!in_tcp_) {
        share_port(fd());
        // The socket may have no port yet: bind gives it one.
        if (everywhere &&
            ::bind(fd(), reinterpret_cast<const sockaddr *>(&local), base::length_of(local)) != 0 &&
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
    const base::Lock lock{mutex_};
    if (state_ != State::Listening) {
        return is_lost() ? lost() : base::failure(EINVAL);
    }
    list_in_child();
    const Deadline deadline = deadline_of(options_.receive_timeout());
    const auto accepted = until(blocks_, deadline, [&]() -> Result<std::shared_ptr<Socket>> {
        assert_looks();
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
    socket.is_new();
    socket.copy_options(*this);
    if (socket.state_ == State::Undecided && configuration().grace.count() != 0) {
        socket.decision_time_.begin_grace(base::Clock::now() + grace_of(client_of(socket.fd())));
    }
    if (blocks_ && socket.stream_ == nullptr) {
        Unanswered::of_this_thread().add(*accepted);
    }
    return *accepted;
}

AnySocket::Answering Socket::answer() {
    const base::Lock lock{mutex_};
    const bool was_undecided = state_ == State::Undecided;
    const bool any = serve();
    const bool is_undecided = state_ == State::Undecided;
    const StreamLock in_stream{stream_};
    return {.did_something = any || was_undecided != is_undecided,
            .is_awaited = is_undecided || (in_stream && !stream_->life().answered())};
}

Result<std::shared_ptr<Socket>> Socket::next_in_tcp(sockaddr *address, socklen_t *length, int flags) {
    // The kernel's socket never blocks, because the device wants it so: blocks_ says whether the program's
    // calls wait.
    base::Fd fd{accept4(this->fd(), address, length, SOCK_NONBLOCK | (flags & SOCK_CLOEXEC))};
    if (!fd) {
        return errno == ECONNABORTED ? base::failure(EAGAIN) : base::last_failure();
    }
    return std::make_shared<Socket>(std::move(fd), State::Undecided, options_.settings(),
                                    (flags & SOCK_NONBLOCK) == 0);
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
        auto accepted = std::make_shared<Socket>(std::move(fd), State::Fresh, options_.settings(),
                                                 (flags & SOCK_NONBLOCK) == 0);
        auto stream = stream::Connection::answer(std::move(*asked), options_.settings(), *accepted);
        if (!stream) {
            return std::unexpected{stream.error()};
        }
        mark_as_stream(accepted->fd());
        accepted->is_new();
        accepted->stream_ = std::move(*stream);
        accepted->become_stream();
        accepted->report_stream();
        if (const StreamLock in_stream{accepted->stream_}; accepted->stream_->life().error() != 0) {
            continue;  // it was no peer of ours, or has gone
        }
        give_name(peer, address, length);
        return accepted;
    }
}

}  // namespace rsockets
