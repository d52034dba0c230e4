// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/tcp_answers: one thread, one socket, no allocation while it serves.
#include "cli/perf/tcp_answers.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/address.hpp"
#include "base/cursor.hpp"
#include "cli/protocol/protocol.hpp"

namespace cli {

namespace {

// The soft device's engine looks for the same time before it sleeps, so the comparison is fair.
constexpr auto tcp_answer_spins = std::chrono::microseconds{30};

}  // namespace

TcpHeader encode_tcp_header(const TcpSizes &sizes) {
    TcpHeader bytes{};
    base::Writer writer{bytes};
    writer.little(sizes.request);
    writer.little(sizes.answer);
    return bytes;
}

Outcome<TcpSizes> decode_tcp_header(std::span<const std::byte, sizeof(TcpHeader)> bytes) {
    base::Reader reader{bytes};
    const TcpSizes sizes{reader.little<std::uint32_t>(), reader.little<std::uint32_t>()};
    if (sizes.request - 1 >= largest_message || sizes.answer - 1 >= largest_message) {
        return failed("requests of {} and answers of {} bytes (expected 1 to {})", sizes.request,
                      sizes.answer, largest_message);
    }
    return sizes;
}

std::uint64_t RequestStream::take(std::span<const std::byte> bytes) {
    std::uint64_t ended = 0;
    while (!bytes.empty()) {
        if (left_ == 0) {
            left_ = request_bytes_;
            wants_answer_ = bytes.front() != std::byte{0};
        }
        const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(left_, bytes.size()));
        bytes = bytes.subspan(part);
        left_ -= part;
        ended += left_ == 0 && wants_answer_ ? 1 : 0;
    }
    return ended;
}

Outcome<std::unique_ptr<TcpAnswers>> TcpAnswers::listen(const sockaddr_storage &local,
                                                        const sockaddr_storage &client) {
    std::unique_ptr<TcpAnswers> answers{new TcpAnswers};
    answers->client_ = client;
    sockaddr_storage address = local;
    base::set_port(address, 0);
    socklen_t size = base::length_of(address);
    auto *raw = reinterpret_cast<sockaddr *>(&address);
    answers->listener_.reset(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int listener = answers->listener_.get();
    if (!answers->stop_ || !answers->listener_ || bind(listener, raw, size) != 0 ||
        ::listen(listener, 1) != 0 || getsockname(listener, raw, &size) != 0) {
        return failed("cannot listen for a TCP baseline: {}", errno_text(errno));
    }
    answers->port_ = base::port_of(address);
    answers->thread_ = TRY(start_thread([raw = answers.get()] { raw->run(); }));
    return answers;
}

TcpAnswers::~TcpAnswers() {
    stop_.stop();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void TcpAnswers::run() {
    if (const base::Fd connection = accept_client()) {
        listener_.reset();
        serve(connection.get());
    }
}

base::Fd TcpAnswers::accept_client() {
    while (stop_.wait(listener_.get(), POLLIN)) {
        sockaddr_storage address{};
        socklen_t size = sizeof(address);
        base::Fd connection{accept4(listener_.get(), reinterpret_cast<sockaddr *>(&address), &size,
                                    SOCK_CLOEXEC | SOCK_NONBLOCK)};
        if (!connection && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
            break;
        }
        if (connection && base::same_host(address, client_)) {
            const int on = 1;
            (void)setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            return connection;
        }
    }
    return {};
}

void TcpAnswers::serve(int connection) {
    TcpHeader header;
    for (std::size_t had = 0; had < header.size();) {
        const std::size_t got = receive(connection, std::span{header}.subspan(had));
        if (got == 0) {
            return;
        }
        had += got;
    }
    const auto sizes = decode_tcp_header(header);
    if (!sizes) {
        return;
    }
    RequestStream requests{sizes->request};
    while (const std::size_t got = receive(connection, buffer_)) {
        if (!send(connection, requests.take(std::span{buffer_}.first(got)) * sizes->answer)) {
            return;
        }
    }
}

std::size_t TcpAnswers::receive(int connection, std::span<std::byte> into) {
    auto idle_since = std::chrono::steady_clock::time_point::max();
    while (!stop_.is_stopped()) {
        const ssize_t got = recv(connection, into.data(), into.size(), 0);
        if (got >= 0) {
            active_.store(std::chrono::steady_clock::now().time_since_epoch(), std::memory_order_relaxed);
            return static_cast<std::size_t>(got);
        }
        if (errno != EAGAIN && errno != EINTR) {
            return 0;
        }
        const auto now = std::chrono::steady_clock::now();
        idle_since = std::min(idle_since, now);
        if (now - idle_since > tcp_answer_spins && !stop_.wait(connection, POLLIN)) {
            return 0;
        }
    }
    return 0;
}

bool TcpAnswers::send(int connection, std::uint64_t size) {
    while (size > 0 && !stop_.is_stopped()) {
        const ssize_t sent =
            ::send(connection, buffer_.data(), std::min<std::uint64_t>(size, buffer_.size()), MSG_NOSIGNAL);
        if (sent >= 0) {
            size -= static_cast<std::uint64_t>(sent);
        } else if ((errno != EAGAIN && errno != EINTR) || !stop_.wait(connection, POLLOUT)) {
            return false;
        }
    }
    return true;
}

}  // namespace cli
