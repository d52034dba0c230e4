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
    if (!listening_.is_at_devices()) {
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

Result<void> Socket::listen_at(const sockaddr_storage &local, int backlog) {
    if (auto chosen = listening_.choose(local); !chosen) {
        return chosen;
    }
    // From listen(2) on TCP lets clients in, and they look in the registry whether this is an rsocket.
    state_ = State::Listening;
    list();
    return listening_.begin(fd(), local, backlog);
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
        return next_client(address, length, flags);
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

Result<std::shared_ptr<Socket>> Socket::next_client(sockaddr *address, socklen_t *length, int flags) {
    const bool blocks = (flags & SOCK_NONBLOCK) == 0;
    while (true) {
        auto client = listening_.next(fd(), address, length, flags);
        if (!client) {
            return std::unexpected{client.error()};
        }
        if (!client->asked) {
            return std::make_shared<Socket>(std::move(client->fd), State::Undecided, options_.settings(),
                                            blocks);
        }
        const auto peer = stream::as_seen_by(family_of(fd()), client->asked->peer);
        auto accepted =
            std::make_shared<Socket>(std::move(client->fd), State::Fresh, options_.settings(), blocks);
        auto stream = stream::Connection::answer(std::move(*client->asked), options_.settings(), *accepted);
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
