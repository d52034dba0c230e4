// SPDX-License-Identifier: BSD-3-Clause
// bench: raw TCP on the same loopback, the baseline.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "../loopback.hpp"
#include "bench.hpp"

namespace bench {

namespace {

int accepted(const std::function<void(std::uint16_t)> &listening) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = test::loopback(0);
    socklen_t length = sizeof(address);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr *>(&address), &length) != 0) {
        die("listen");
    }
    listening(ntohs(address.sin_port));
    const int connection = accept(listener, nullptr, nullptr);
    close(listener);
    return connection;
}

int connected(std::uint16_t port) {
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = test::loopback(port);
    const int on = 1;
    (void)setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(connection, reinterpret_cast<const sockaddr *>(&address), sizeof(address)) != 0) {
        die("connect");
    }
    return connection;
}

// Spins until `size` bytes have arrived; returns false at the end of the stream.
bool receive_spinning(int connection, char *to, std::size_t size) {
    while (size != 0) {
        const ssize_t count = recv(connection, to, size, MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EAGAIN)) {
            return false;
        }
        if (count > 0) {
            to += count;
            size -= static_cast<std::size_t>(count);
        }
    }
    return true;
}

// Spins while the socket is full. A failure shows itself in the next receive_spinning().
void send_spinning(int connection, const char *from, std::size_t size) {
    while (size != 0) {
        const ssize_t count = send(connection, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN) {
            return;
        }
        if (count > 0) {
            from += count;
            size -= static_cast<std::size_t>(count);
        }
    }
}

}  // namespace

// Uses blocking calls, which are best for plain TCP. The peer answers the last byte, so that all bytes were
// received.
double tcp_bandwidth(std::size_t block, std::size_t total) {
    const PeerProcess peer{[&](const auto &listening) {
        const int connection = accepted(listening);
        std::vector<char> area(area_bytes);
        std::size_t received = 0;
        while (received < total) {
            const std::size_t offset = received % area_bytes;
            const ssize_t count =
                recv(connection, area.data() + offset, std::min(block, area_bytes - offset), 0);
            if (count <= 0) {
                _exit(EXIT_FAILURE);
            }
            received += static_cast<std::size_t>(count);
        }
        (void)!write(connection, "d", 1);
        close(connection);
    }};
    const int connection = connected(peer.port());
    const std::vector<char> area(area_bytes, 'x');
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t sent = 0; sent < total;) {
        const std::size_t offset = sent % area_bytes;
        const ssize_t count = send(connection, area.data() + offset,
                                   std::min({block, total - sent, area_bytes - offset}), MSG_NOSIGNAL);
        if (count <= 0) {
            die("send");
        }
        sent += static_cast<std::size_t>(count);
    }
    char answer = 0;
    if (recv(connection, &answer, 1, MSG_WAITALL) != 1) {
        die("recv");
    }
    const double seconds = seconds_since(start);
    close(connection);
    return static_cast<double>(total) / seconds;
}

std::size_t best_tcp_block(std::size_t total) {
    std::size_t best = 0;
    double best_bandwidth = 0;
    for (const std::size_t block : {32UZ << 10, 64UZ << 10, 128UZ << 10, 256UZ << 10, 1UZ << 20, 4UZ << 20}) {
        // The median of five: with a congestion control that paces (bbr) the figures of blocks that are
        // longer than a segment differ by a factor of four from run to run.
        std::array<double, 5> runs{};
        std::ranges::generate(runs, [&] { return tcp_bandwidth(block, total); });
        std::ranges::sort(runs);
        const double bandwidth = runs[runs.size() / 2];
        if (bandwidth > best_bandwidth) {
            best = block;
            best_bandwidth = bandwidth;
        }
    }
    return best;
}

double tcp_round_trip(unsigned rounds, std::size_t size) {
    const PeerProcess peer{[&](const auto &listening) {
        const int connection = accepted(listening);
        const int on = 1;
        (void)setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        std::vector<char> bytes(size);
        while (receive_spinning(connection, bytes.data(), size)) {
            send_spinning(connection, bytes.data(), size);
        }
        close(connection);
    }};
    const int connection = connected(peer.port());
    std::vector<char> bytes(size);
    std::chrono::steady_clock::time_point start;
    for (unsigned round = 0; round < rounds + rounds / 10; ++round) {
        if (round == rounds / 10) {
            start = std::chrono::steady_clock::now();  // warm
        }
        send_spinning(connection, bytes.data(), size);
        if (!receive_spinning(connection, bytes.data(), size)) {
            die("round trip");
        }
    }
    const double seconds = seconds_since(start);
    close(connection);
    return seconds / rounds;
}

double tcp_stored(unsigned rounds, std::size_t size, const char *folder) {
    const int file = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    std::vector<char> bytes(size, 'x');
    const auto store = [&] {
        return pwrite(file, bytes.data(), size, 0) == static_cast<ssize_t>(size) && fdatasync(file) == 0;
    };
    if (file < 0 || !store()) {
        die(folder);
    }
    const PeerProcess peer{[&](const auto &listening) {
        const int connection = accepted(listening);
        while (recv(connection, bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size) && store()) {
            (void)!write(connection, "d", 1);
        }
        close(connection);
    }};
    const int connection = connected(peer.port());
    std::vector<double> took(rounds);
    for (double &seconds : took) {
        const auto start = std::chrono::steady_clock::now();
        char answer = 0;
        if (write(connection, bytes.data(), size) != static_cast<ssize_t>(size) ||
            recv(connection, &answer, 1, MSG_WAITALL) != 1) {
            die("stored");
        }
        seconds = seconds_since(start);
    }
    close(connection);
    close(file);
    std::ranges::nth_element(took, took.begin() + rounds / 2);
    return took[rounds / 2];
}

}  // namespace bench
