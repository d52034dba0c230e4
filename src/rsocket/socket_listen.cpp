// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: listening, and accepting clients.
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "rsocket/kernel_socket.hpp"
#include "rsocket/socket.hpp"
#include "rsocket/wait.hpp"
#include "stream/address.hpp"

namespace rsockets {

namespace {

// The device takes a request that has come within microseconds where it has a processor.
constexpr milliseconds longest_for_request{20};

// Returns whether a request of MPA (RFC 5044 section 7.1) has come as a whole. A socket without bytes is not
// read: it would report an error that is the device's.
bool has_request(int fd) {
    constexpr std::string_view key = "MPA ID Req Frame";
    std::array<char, 20> header{};  // the last two bytes are the number of those behind it
    int unread = 0;
    if (ioctl(fd, SIOCINQ, &unread) != 0 || unread < static_cast<int>(header.size()) ||
        recv(fd, header.data(), header.size(), MSG_PEEK | MSG_DONTWAIT) != ssize_t{header.size()} ||
        !std::string_view{header.data(), header.size()}.starts_with(key)) {
        return false;
    }
    const auto byte = [&](std::size_t at) { return int{static_cast<unsigned char>(header.at(at))}; };
    return unread >= static_cast<int>(header.size()) + (byte(18) << 8 | byte(19));
}

}  // namespace

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
            // From listen(2) on TCP lets clients in.
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
    base::Lock lock{carrier_.mutex()};
    if (carrier_.state() != State::Listening) {
        return carrier_.state() == State::Lost ? carrier_.lost() : base::failure(EINVAL);
    }
    carrier_.list_in_child();
    const Deadline deadline = Wait::deadline_of(carrier_.options().receive_timeout());
    const auto accepted = Wait{carrier_, carrier_.blocks(), deadline}.until([&]() -> Result<Accepted> {
        carrier_.assert_looks();
        return next_client(address, length, flags);
    });
    if (!accepted) {
        return std::unexpected{accepted.error()};
    }
    lock.unlock();
    if (accepted->has_asked) {
        accepted->socket->await_request();
    }
    return accepted->socket;
}

Result<Socket::Accepted> Socket::next_client(sockaddr *address, socklen_t *length, int flags) {
    const bool blocks = (flags & SOCK_NONBLOCK) == 0;
    while (true) {
        auto client = carrier_.listening().next(fd(), address, length, flags);
        if (!client) {
            return std::unexpected{client.error()};
        }
        auto accepted = std::make_shared<Socket>(std::move(client->fd), State::Accepted,
                                                 carrier_.options().settings(), blocks);
        Carrier &carrier = accepted->carrier_;
        carrier.is_new();
        carrier.copy_options(carrier_);
        const bool is_of_kernel = client->asked.has_value();
        if (!is_of_kernel && configuration().fork_safe) {
            return Accepted{.socket = std::move(accepted)};
        }
        if (is_of_kernel) {
            give_name(stream::as_seen_by(family_of(fd()), client->asked->peer), address, length);
        }
        const bool has_asked = !is_of_kernel && has_request(accepted->fd());
        const auto answered = carrier.answer(
            is_of_kernel ? Result<stream::Approach>{stream::Approach::answering(std::move(*client->asked))}
                         : stream::Approach::on_socket(stream::Side::Passive, accepted->fd()));
        if (!answered && answered.error().number != ECONNABORTED) {
            return std::unexpected{answered.error()};
        }
        const StreamLock in_stream{carrier.stream()};
        if (in_stream && (!is_of_kernel || carrier.stream()->life().error() == 0)) {
            return Accepted{.socket = std::move(accepted), .has_asked = has_asked};
        }
        // It was no peer of ours, or has gone.
    }
}

// The device takes a moment for a request that has come. Until then the peer has no answer. The device may
// also let a request of an address that guesses keys wait, and other clients do not wait for that: such a
// peer has its answer when the thread waits next.
void Socket::await_request() {
    const base::Lock lock{carrier_.mutex()};
    (void)Wait{carrier_, true, Wait::deadline_of(longest_for_request)}.until([&]() -> Result<void> {
        carrier_.assert_looks();
        return carrier_.stream()->life().answered() ? Result<void>{} : base::failure(EAGAIN);
    });
}

}  // namespace rsockets
