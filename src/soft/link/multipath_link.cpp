// SPDX-License-Identifier: BSD-3-Clause
#include "soft/link/multipath_link.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <sys/socket.h>

#include <cerrno>

#include "base/multipath.hpp"

namespace soft {

namespace {

// A silence is noticed so much later at most.
constexpr std::chrono::seconds look_interval{5};

}  // namespace

Link::Sent MultipathLink::send(std::span<const iovec> pieces) {
    return given_up_.load(std::memory_order_relaxed) ? Sent{.error = ETIMEDOUT} : TcpLink::send(pieces);
}

// The kernel closes a connection without a path after a minute (net.mptcp.close_timeout), and says ENOTCONN.
Link::Received MultipathLink::receive(std::span<const iovec> pieces) {
    const Received got = TcpLink::receive(pieces);
    if (got.error == ENOTCONN) {
        given_up_.store(true, std::memory_order_relaxed);
    }
    if (got.bytes == 0 && given_up_.load(std::memory_order_relaxed)) {
        return {.state = Received::State::Failed, .error = ETIMEDOUT};
    }
    return got;
}

Link::Ready MultipathLink::ready() const {
    return given_up_.load(std::memory_order_relaxed)
               ? Ready{.readable = true, .writable = true, .ended = true}
               : TcpLink::ready();
}

int MultipathLink::failure() {
    return given_up_.load(std::memory_order_relaxed) ? ETIMEDOUT : TcpLink::failure();
}

// The kernel has no TCP_MAXSEG for these sockets before Linux 6.17, but tells the number of the first path.
std::size_t MultipathLink::max_segment() const {
    tcp_info info{};
    socklen_t size = sizeof(info);
    return getsockopt(descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_snd_mss != 0
               ? info.tcpi_snd_mss
               : TcpLink::max_segment();
}

// The peer may have no MPTCP. Then the connection has TCP's time-out.
base::Clock::time_point MultipathLink::look_at_peer() {
    const auto now = base::Clock::now();
    const auto state = base::multipath_state(descriptor());
    if (!state) {
        const auto milliseconds = static_cast<unsigned>(silence_.count());
        (void)setsockopt(descriptor(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
        return base::Clock::time_point::max();
    }
    if (state->acknowledged != acknowledged_ || !undelivered()) {
        acknowledged_ = state->acknowledged;
        moved_ = now;
    }
    if (std::chrono::milliseconds{state->silent_ms} >= silence_ || now - moved_ >= silence_) {
        given_up_.store(true, std::memory_order_relaxed);
        abandon();
        return base::Clock::time_point::max();
    }
    return now + look_interval;
}

std::optional<std::size_t> MultipathLink::paths() const {
    return base::paths_of(descriptor());
}

std::unique_ptr<Link> link_on(base::Fd socket, std::chrono::milliseconds silence) {
    if (base::is_multipath(socket.get())) {
        return std::make_unique<MultipathLink>(std::move(socket), silence);
    }
    return std::make_unique<TcpLink>(std::move(socket));
}

}  // namespace soft
