// SPDX-License-Identifier: BSD-3-Clause
// rsocket/beginning: from rconnect to a stream, or to TCP where the server has no streams.
#include <linux/tcp.h>
#include <netinet/in.h>

#include <cerrno>
#include <utility>

#include "base/address.hpp"
#include "rsocket/beginning.hpp"
#include "rsocket/kernel_socket.hpp"
#include "rsocket/probe.hpp"
#include "stream/address.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

using State = Carrier::State;

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

Result<void> Beginning::reach(const sockaddr *address, socklen_t length) {
    carrier_.mutex().assert_held();
    const int fd = carrier_.fd();
    carrier_.ended() = {};
    if (auto remote = copied(address, length)) {
        replay_.begin(fd, *remote);
        *remote = base::without_mapping(*remote);
        if (const int reason = carrier_.options().may_be_tcp() ? why_not_ask(*remote) : RDMA_REASON_NONE;
            reason != RDMA_REASON_NONE) {
            stay_tcp(reason);
            return {};
        }
        const auto local = local_address_to(fd, *remote);
        // If there is no route, TCP's connect reports it.
        const auto device =
            local ? stream::Device::of_kernel_at(*local) : Result<const stream::Device *>{nullptr};
        if (!device) {
            return std::unexpected{device.error()};
        }
        if (*device != nullptr) {
            share_port(fd);
            auto stream = stream::Connection::begin(stream::Approach::to(**device, *local, *remote),
                                                    carrier_.options().settings(), carrier_.observer());
            if (!stream) {
                return std::unexpected{stream.error()};
            }
            mark_as_stream(fd);
            carrier_.set_state(State::Offered);
            carrier_.take(std::move(*stream));
            return {};
        }
    }
    // With this option the kernel holds back the packet that completes the connection until the request goes
    // with it. The peer's server therefore has the request when it accepts.
    constexpr int seconds = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds));
    if (::connect(fd, address, length) != 0 && errno != EINPROGRESS) {
        return base::last_failure();
    }
    carrier_.set_state(State::Reaching);
    carrier_.list();
    return {};
}

bool Beginning::is_connecting() {
    carrier_.mutex().assert_held();
    const StreamLock in_stream{carrier_.stream()};
    const State state = carrier_.state();
    return state == State::Reaching || state == State::Replaying ||
           (state == State::Offered && !carrier_.options().may_be_tcp() &&
            !carrier_.stream()->life().was_established());
}

bool Beginning::may_fall_back() {
    carrier_.mutex().assert_held();
    return carrier_.options().may_be_tcp() && carrier_.stream() != nullptr &&
           !carrier_.stream()->shard()->device().is_of_kernel();
}

// Looks at TCP's connection, which is there, or has failed.
bool Beginning::take_connection() {
    if (polled(carrier_.fd(), POLLOUT) == 0) {
        return false;
    }
    if (const int error = pending_error(carrier_.fd()); error != 0) {
        give_up(error);
        return true;
    }
    if (!begin_stream(stream::Side::Active)) {
        return false;
    }
    if (may_fall_back()) {
        decision_time_.await_answer();
        const StreamLock in_stream{carrier_.stream()};
        carrier_.stream()->early_sends().begin();
    }
    return true;
}

bool Beginning::take_answer() {
    int error = 0;
    bool is_tcp = may_fall_back();
    bool is_stream = false;
    {
        const StreamLock in_stream{carrier_.stream()};
        const stream::Life &life = carrier_.stream()->life();
        is_stream = life.was_established();
        error = life.error();
        is_tcp = is_tcp && !life.was_accepted();
    }
    if (is_stream) {
        carrier_.become_stream();
        decision_time_.drop_timer();
        decision_time_.await_no_answer();
        forget_tcp(base::without_mapping(replay_.server()));
        carrier_.list();
        return false;
    }
    if (error == 0 && is_tcp && decision_time_.is_answer_late()) {
        decision_time_.await_no_answer();
        // A slow rsocket has as long as the device gives it. With Probe::Known the server was an rsocket
        // when it was asked, and may no longer listen.
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

void Beginning::give_up(int error) {
    drop_stream();
    replay_.forget();
    carrier_.fail(error);
}

void Beginning::drop_stream() {
    carrier_.destroy_stream();
    decision_time_.await_no_answer();
    decision_time_.drop_timer();
    replay_.disconnect(carrier_.fd());
    carrier_.options().of_kernel().apply(carrier_.fd());
}

void Beginning::fall_back(int reason) {
    {
        const StreamLock in_stream{carrier_.stream()};
        replay_.keep_all(carrier_.stream()->early_sends().take());
    }
    drop_stream();
    // A server with rsockets also drops the connection when it closes an rsocket that it has accepted and
    // not used.
    const auto server = base::without_mapping(replay_.server());
    if (reason != RDMA_REASON_PEER_REFUSED && !is_known(server)) {
        remember_tcp(server);
    }
    carrier_.set_reason(reason);
    carrier_.set_state(State::Replaying);
    if (const auto begun = replay_.connect(carrier_.fd()); !begun) {
        give_up(begun.error().number);
    }
    carrier_.list();
}

bool Beginning::replay() {
    const int fd = carrier_.fd();
    if (polled(fd, POLLOUT) == 0) {
        return false;
    }
    const int failed = pending_error(fd);
    const auto sent = failed == 0 ? replay_.send(fd) : base::failure(failed);
    if (!sent && failed == 0 && sent.error().number == EAGAIN) {
        return false;
    }
    if (!sent) {
        give_up(sent.error().number);
        return true;
    }
    if (carrier_.ended().receiving) {
        (void)::shutdown(fd, SHUT_RD);
    }
    if (carrier_.ended().sending) {
        (void)::shutdown(fd, SHUT_WR);
    }
    stay_tcp(carrier_.reason());
    return true;
}

Result<std::size_t> Beginning::keep(std::span<const iovec> parts) {
    carrier_.mutex().assert_held();
    if (carrier_.ended().sending) {
        return base::failure(EPIPE);
    }
    const auto most = static_cast<std::size_t>(carrier_.buffer_bytes(&stream::Settings::send_bytes));
    return replay_.keep(parts, most);
}

bool Beginning::waits_with_bytes() {
    carrier_.assert_looks();
    const State state = carrier_.state();
    const bool asks = state == State::Offered && decision_time_.awaits_answer();
    return state == State::Replaying || (asks && !carrier_.stream()->early_sends().empty() &&
                                         !carrier_.stream()->life().was_established());
}

}  // namespace rsockets
