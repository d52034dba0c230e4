// SPDX-License-Identifier: BSD-3-Clause
// carry_device/spares: the port of a process, and the connections to those of others.
#include "carry_device/spares.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>

#include "base/address.hpp"
#include "carry/high_number.hpp"
#include "carry_device/names.hpp"

namespace carry_device {

namespace {

constexpr int socket_flags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
// A peer that said it would come, or nothing, is asked again after this time: it may have failed meanwhile,
// or others at its port have made it end the connection.
constexpr std::chrono::seconds asks_again{1};

}  // namespace

bool Spares::begin_to_listen(int events) {
    events_ = events;
    base::Fd fd = bound_to_all(socket_flags, 0, [](int) { return true; });
    if (fd && listen(fd.get(), SOMAXCONN) != 0) {
        fd.reset();
    }
    listener_ = Watched{events, std::move(fd)};
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    if (!listener_ || getsockname(listener_.get(), reinterpret_cast<sockaddr *>(&own), &length) != 0) {
        return false;
    }
    port_ = static_cast<std::uint16_t>(base::port_of(own));
    return true;
}

SparePort Spares::announce() const {
    SparePort spare{.key = 0, .port = port_};
    if (getrandom(&spare.key, sizeof(spare.key), 0) != sizeof(spare.key)) {
        spare.port = 0;
    }
    return spare;
}

bool Spares::accept_some() {
    for (std::size_t count = 0; count < most; ++count) {
        base::Fd fd{listener_ ? accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)
                              : -1};
        if (!fd) {
            return false;
        }
        all_.push_back({.fd = Watched{events_, base::Fd{carry::high_number(fd.release())}}, .greeting = {}});
    }
    return true;
}

bool Spares::reads(Incoming &one) {
    auto *const bytes = reinterpret_cast<std::byte *>(&one.greeting);
    const ssize_t more = recv(one.fd.get(), bytes + one.got, sizeof(one.greeting) - one.got, 0);
    if (more <= 0) {
        if (more == 0 || (errno != EAGAIN && errno != EINTR)) {
            one.fd.reset();
        }
        return false;
    }
    one.got += static_cast<std::size_t>(more);
    return one.got == sizeof(one.greeting);
}

Attempt::Result Attempt::advance(int events, const carry::FourTuple &connection, std::uint64_t name,
                                 const SparePort &peers) {
    const auto now = base::Clock::now();
    if (ends_ == base::Clock::time_point{}) {
        ends_ = now + limit_;
    }
    if (now > ends_) {
        fd_.reset();
        return Result::Fails;
    }
    if (state_ == State::Waits && now > until_) {
        state_ = State::None;
    }
    if (state_ == State::None) {
        if (!connect(events, connection, peers.port)) {
            return Result::Fails;
        }
        state_ = State::Connects;
    }
    if (state_ == State::Connects) {
        pollfd one{.fd = fd_.get(), .events = POLLOUT, .revents = 0};
        if (poll(&one, 1, 0) == 0) {
            return Result::Later;
        }
        if (!greet({.name = name, .key = peers.key, .side = connection.side})) {
            return Result::Fails;
        }
        state_ = State::Asks;
    }
    return state_ == State::Asks ? hear() : Result::Later;
}

bool Attempt::connect(int events, const carry::FourTuple &connection, std::uint16_t port) {
    const Name own = name_of(connection.ends[connection.side], 0);
    const Name peers = name_of(connection.ends[1 - connection.side], port);
    constexpr int on = 1;
    fd_ = Watched{events, base::Fd{carry::high_number(socket(own.address.ss_family, socket_flags, 0))}};
    return port != 0 && fd_ &&
           setsockopt(fd_.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)) == 0 &&
           bind(fd_.get(), own.get(), own.length) == 0 &&
           (::connect(fd_.get(), peers.get(), peers.length) == 0 || errno == EINPROGRESS);
}

// A new connection has room for the few bytes.
bool Attempt::greet(const Greeting &greeting) const {
    int error = 0;
    socklen_t length = sizeof(error);
    return getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0 &&
           send(fd_.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting);
}

Attempt::Result Attempt::hear() {
    auto reply = Reply::Refused;
    const ssize_t bytes = recv(fd_.get(), &reply, sizeof(reply), 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
        return Result::Later;
    }
    if (bytes == sizeof(reply) && reply == Reply::Taken) {
        return Result::Goes;
    }
    return bytes != sizeof(reply) || reply == Reply::Comes ? wait() : Result::Fails;
}

Attempt::Result Attempt::wait() {
    fd_.reset();
    state_ = State::Waits;
    until_ = base::Clock::now() + asks_again;
    return Result::Later;
}

}  // namespace carry_device
