// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: listening, and accepting clients.
#include <cerrno>

#include "rsocket/kernel_socket.hpp"
#include "rsocket/probe.hpp"
#include "rsocket/socket.hpp"
#include "rsocket/unanswered.hpp"
#include "rsocket/wait.hpp"
#include "stream/address.hpp"

namespace rsockets {

Result<void> Socket::listen(int backlog) {
    const base::Lock lock{carrier_.mutex()};
    const State before = carrier_.state();
    if (before != State::Fresh && before != State::Listening) {
        return base::failure(EINVAL);
    }
    Listening &listening = carrier_.listening();
    if (!listening.is_at_devices()) {
        const auto local = stream::name_of(fd());
        if (!local) {
            return std::unexpected{local.error()};
        }
        auto listens = listening.choose(*local);
        if (listens) {
            // From listen(2) on TCP lets clients in, and they look in the registry whether this is an
            // rsocket.
            carrier_.set_state(State::Listening);
            carrier_.list();
            listens = listening.begin(fd(), *local, backlog);
        }
        if (!listens) {
            carrier_.set_state(before);
            carrier_.list();
            return listens;
        }
    }
    carrier_.list();
    waiters_.wake();
    return {};
}

Result<std::shared_ptr<AnySocket>> Socket::accept(sockaddr *address, socklen_t *length, int flags) {
    const base::Lock lock{carrier_.mutex()};
    if (carrier_.state() != State::Listening) {
        return carrier_.state() == State::Lost ? carrier_.lost() : base::failure(EINVAL);
    }
    carrier_.list_in_child();
    const Deadline deadline = Wait::deadline_of(carrier_.options().receive_timeout());
    const auto accepted =
        Wait{beginning_, carrier_.blocks(), deadline}.until([&]() -> Result<std::shared_ptr<Socket>> {
            carrier_.assert_looks();
            return next_client(address, length, flags);
        });
    if (!accepted) {
        return std::unexpected{accepted.error()};
    }
    Socket &socket = **accepted;
    socket.carrier_.is_new();
    socket.carrier_.copy_options(carrier_);
    if (socket.is_undecided() && configuration().grace.count() != 0) {
        socket.beginning_.begin_grace(base::Clock::now() + grace_of(client_of(socket.fd())));
    }
    if (carrier_.blocks() && socket.carrier_.stream() == nullptr) {
        Unanswered::of_this_thread().add(*accepted);
    }
    return *accepted;
}

AnySocket::Answering Socket::answer() {
    const base::Lock lock{carrier_.mutex()};
    const bool was_undecided = is_undecided();
    const bool any = beginning_.serve();
    const StreamLock in_stream{carrier_.stream()};
    return {.did_something = any || was_undecided != is_undecided(),
            .is_awaited = is_undecided() || (in_stream && !carrier_.stream()->life().answered())};
}

Result<std::shared_ptr<Socket>> Socket::next_client(sockaddr *address, socklen_t *length, int flags) {
    const bool blocks = (flags & SOCK_NONBLOCK) == 0;
    const stream::Settings &settings = carrier_.options().settings();
    while (true) {
        auto client = carrier_.listening().next(fd(), address, length, flags);
        if (!client) {
            return std::unexpected{client.error()};
        }
        if (!client->asked) {
            return std::make_shared<Socket>(std::move(client->fd), State::Undecided, settings, blocks);
        }
        const auto peer = stream::as_seen_by(family_of(fd()), client->asked->peer);
        auto accepted = std::make_shared<Socket>(std::move(client->fd), State::Fresh, settings, blocks);
        Carrier &carrier = accepted->carrier_;
        auto stream = stream::Connection::begin(stream::Approach::answering(std::move(*client->asked)),
                                                settings, carrier.observer());
        if (!stream) {
            return std::unexpected{stream.error()};
        }
        mark_as_stream(accepted->fd());
        carrier.is_new();
        carrier.set_state(State::Streaming);
        carrier.take(std::move(*stream));
        if (const StreamLock in_stream{carrier.stream()}; carrier.stream()->life().error() != 0) {
            continue;  // it was no peer of ours, or has gone
        }
        give_name(peer, address, length);
        return accepted;
    }
}

}  // namespace rsockets
