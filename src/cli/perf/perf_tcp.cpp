// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_tcp: uses sockets that do not block, with one system call for each request or answer when TCP
// has room.
#include "cli/perf/perf_tcp.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "base/address.hpp"
#include "cli/transfer/client_connection.hpp"

namespace cli {

namespace {

constexpr std::uint32_t small_bytes = 8;
// The received bytes are not used; a buffer of this size stays in the cache.
constexpr std::size_t receive_bytes = std::size_t{256} << 10;

std::unexpected<Failure> lost(const char *what) {
    return failed(Exit::Unreachable, "the TCP baseline's connection ended: {}", what);
}

}  // namespace

TcpPath::TcpPath(const Load &load, double timeout_seconds)
    : load_{load},
      timeout_{timeout_seconds},
      sizes_{load.op == PerfOp::Read ? small_bytes : load.bytes,
             load.op == PerfOp::Read ? load.bytes : small_bytes},
      request_(sizes_.request, std::byte{1}),
      answer_(receive_bytes) {}

Outcome<std::unique_ptr<TcpPath>> TcpPath::open(std::span<const sockaddr_storage> servers, const Load &load,
                                                double timeout_seconds) {
    std::unique_ptr<TcpPath> path{new TcpPath{load, timeout_seconds}};
    for (const sockaddr_storage &server : servers) {
        TRY(path->connect(server));
    }
    return path;
}

Outcome<> TcpPath::connect(const sockaddr_storage &server) {
    base::Fd fd{socket(server.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (!fd) {
        return failed("cannot have a socket for the TCP baseline: {}", errno_text(errno));
    }
    const int on = 1;
    (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // The time-out is also that of connect(2).
    const timeval timeout{static_cast<time_t>(timeout_),
                          static_cast<suseconds_t>(std::fmod(timeout_, 1) * 1e6)};
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    const TcpHeader header = encode_tcp_header(sizes_);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr *>(&server), base::length_of(server)) != 0 ||
        ::send(fd.get(), header.data(), header.size(), MSG_NOSIGNAL) != ssize_t{sizeof(header)}) {
        return failed(Exit::Unreachable, "cannot connect to the TCP baseline, port {}: {}",
                      base::port_of(server), errno_text(errno));
    }
    waiting_.push_back({fd.get(), 0, 0});
    connections_.emplace_back(std::move(fd), base::Ring<std::uint32_t>{load_.depth});
    return {};
}

Outcome<> TcpPath::start(std::uint32_t slot, bool answered) {
    Connection &connection = connections_[slot / load_.depth];
    answered_ = answered;
    request_.front() = std::byte{answered};
    connection.posted.push(slot);
    connection.unsent += sizes_.request;
    return send(connection);
}

Outcome<> TcpPath::post(std::uint32_t slot) {
    return start(slot, !load_.is_one_way());
}

Outcome<> TcpPath::post_barrier(std::uint32_t slot) {
    return start(slot, true);
}

// Sends as much as TCP takes now, one request at a time.
Outcome<> TcpPath::send(Connection &connection) {
    while (connection.unsent > 0) {
        const std::uint64_t left = (connection.unsent - 1) % sizes_.request + 1;
        const ssize_t sent = ::send(connection.socket.get(), request_.data() + (sizes_.request - left), left,
                                    MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            return errno == EAGAIN || errno == EINTR ? Outcome<>{} : lost(errno_text(errno));
        }
        connection.unsent -= static_cast<std::uint64_t>(sent);
        connection.done += !answered_ && std::cmp_equal(sent, left) ? 1 : 0;
    }
    return {};
}

Outcome<> TcpPath::receive(Connection &connection) {
    const ssize_t got = recv(connection.socket.get(), answer_.data(), answer_.size(), MSG_DONTWAIT);
    if (got < 0) {
        return errno == EAGAIN || errno == EINTR ? Outcome<>{} : lost(errno_text(errno));
    }
    if (got == 0) {
        return lost("the server closed it");
    }
    connection.received += static_cast<std::uint64_t>(got);
    connection.done += static_cast<std::uint32_t>(connection.received / sizes_.answer);
    connection.received %= sizes_.answer;
    if (connection.done > connection.posted.size()) {
        return lost("the server sent an answer without a request");
    }
    return {};
}

Outcome<std::size_t> TcpPath::collect(std::span<std::uint32_t> done) {
    std::size_t found = 0;
    for (Connection &connection : connections_) {
        TRY(send(connection));
        if (answered_ && connection.done == 0 && !connection.posted.empty()) {
            TRY(receive(connection));
        }
        for (; connection.done > 0 && found < done.size(); --connection.done) {
            done[found++] = connection.posted.front();
            connection.posted.pop();
        }
    }
    return found;
}

Outcome<> TcpPath::wait() {
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
        waiting_[i].events = static_cast<short>(POLLIN | (connections_[i].unsent > 0 ? POLLOUT : 0));
    }
    const auto timeout_ms = static_cast<int>(timeout_ * 1000);
    const int ready = poll(waiting_.data(), waiting_.size(), timeout_ms);
    if (ready < 0 && errno != EINTR) {
        return failed("poll: {}", errno_text(errno));
    }
    return ready != 0 ? Outcome<>{}
                      : failed(Exit::Unreachable, "the TCP baseline: no answer for {} seconds", timeout_);
}

}  // namespace cli
