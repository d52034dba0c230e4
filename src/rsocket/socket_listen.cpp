// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: listening, and taking those who connect.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>

#include "base/address.hpp"
#include "rsocket/kernel_socket.hpp"
#include "rsocket/poll.hpp"
#include "rsocket/probe.hpp"
#include "rsocket/socket.hpp"
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
    const Deadline deadline = deadline_of(receive_timeout_);
    if (blocks_) {
        if (auto answered = answer_while_waiting(deadline); !answered) {
            return std::unexpected{answered.error()};
        }
    }
    const auto accepted = until(blocks_, deadline, [&]() -> Result<std::shared_ptr<Socket>> {
        mutex_.assert_held();
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
        socket.grace_ends_ = base::Clock::now() + grace_of(client_of(socket.fd()));
    }
    if (blocks_ && socket.stream_ == nullptr) {
        unanswered_.push_back(*accepted);
    }
    return *accepted;
}

// The peer of an accepted rsocket waits until the program uses that. A program that accepts the next one
// first waits here, so that the peers are answered here.
Result<void> Socket::answer_while_waiting(Deadline deadline) {
    while (!closed_ && !unanswered_.empty() && listener_readiness(POLLIN) == 0) {
        std::vector<pollfd> entries{{.fd = fd(), .events = POLLIN, .revents = 0}};
        std::erase_if(unanswered_, [&](const std::weak_ptr<Socket> &one) {
            const auto socket = one.lock();
            if (socket == nullptr || !socket->awaits_answer()) {
                return true;
            }
            entries.push_back({.fd = socket->fd(), .events = POLLIN, .revents = 0});
            return false;
        });
        Result<int> waited = 0;
        {
            const base::Unlock unlocked{mutex_};
            waited = wait_for(entries, deadline);
        }
        if (!waited || *waited == 0) {
            return waited ? Result<void>{} : std::unexpected{waited.error()};
        }
    }
    return {};
}

bool Socket::awaits_answer() {
    const base::Lock lock{mutex_};
    (void)serve();
    const auto in_stream = lock_stream();
    return state_ == State::Undecided || (in_stream && !stream_->answered());
}

Result<std::shared_ptr<Socket>> Socket::next_in_tcp(sockaddr *address, socklen_t *length, int flags) {
    // The kernel's socket never blocks, because the device wants it so: blocks_ says whether the program's
    // calls wait.
    base::Fd fd{accept4(this->fd(), address, length, SOCK_NONBLOCK | (flags & SOCK_CLOEXEC))};
    if (!fd) {
        return errno == ECONNABORTED ? base::failure(EAGAIN) : base::last_failure();
    }
    return std::make_shared<Socket>(std::move(fd), State::Undecided, settings_, (flags & SOCK_NONBLOCK) == 0);
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
        mark_as_stream(accepted->fd());
        accepted->is_new();
        accepted->stream_ = std::move(*stream);
        accepted->state_ = State::Streaming;
        accepted->report_stream();
        if (const auto in_stream = accepted->lock_stream(); accepted->stream_->error() != 0) {
            continue;  // it was no peer of ours, or has gone
        }
        give_name(peer, address, length);
        return accepted;
    }
}

}  // namespace rsockets
