// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_plain: the beginning of a pair with a plain socket of TCP at one end, in one thread.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rsocket_pair.hpp"

namespace model {

namespace {

constexpr int patience_ms = 40'000;

}  // namespace

// A program that accepts only RDMA gets an error, and neither a byte nor an end of the stream.
std::string RsocketPair::refuse_tcp(int end) {
    pollfd one{.fd = fd(end), .events = POLLIN, .revents = 0};
    const int ready = rpoll(&one, 1, patience_ms);
    std::byte byte{};
    const ssize_t count = ready == 1 ? rrecv(one.fd, &byte, 1, MSG_DONTWAIT) : ready;
    const bool is_refused = ready == 1 && count < 0 && (errno == EPROTO || errno == ECONNRESET);
    broken_ = true;
    return is_refused ? "" : wrong(end, "rrecv of a peer that speaks TCP, which is not wanted,", count);
}

std::string RsocketPair::connect_from_plain() {
    enum class First { Client, Server, Nobody };
    const auto first = static_cast<First>(dice_.below(3));
    sockaddr_in address{};
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    const int listener = listening(of_rsockets, true, address);
    ends_[0].fd = socket(AF_INET, SOCK_STREAM, 0);
    ends_[0].calls = &of_kernel;
    if (listener < 0 || ::connect(fd(0), name, sizeof(address)) != 0) {
        return wrong(0, "connect in TCP", -1);
    }
    send_at_once(of_kernel, fd(0));
    (void)fcntl(fd(0), F_SETFL, O_NONBLOCK);
    std::string text;
    const bool is_early = first == First::Client && dice_.one_in(2);
    if (is_early) {
        text = send(0, true);
    }
    ends_[1].fd = raccept(listener, nullptr, nullptr);
    (void)rclose(listener);
    if (fd(1) < 0) {
        return wrong(1, "raccept", -1);
    }
    if (first == First::Client && !is_early) {
        text = send(0, true);
    }
    (void)rfcntl(fd(1), F_SETFL, O_NONBLOCK);
    ends_[1].reasons = first == First::Client   ? bit(RDMA_REASON_PEER_SPEAKS_TCP)
                       : first == First::Server ? bit(RDMA_REASON_SPOKE_FIRST)
                                                : either_speaks_first;
    if (setting_.probe == Probe::Only || (first == First::Client && dice_.one_in(8))) {
        demand_rdma(1);
        if (first != First::Client) {
            text = send(0, true);
        }
        return text.empty() ? refuse_tcp(1) : text;
    }
    if (first == First::Nobody || !text.empty()) {
        return text;
    }
    const short awaited = first == First::Client ? POLLIN : POLLOUT;
    pollfd one{.fd = fd(1), .events = awaited, .revents = 0};
    if (const int count = rpoll(&one, 1, patience_ms); count != 1) {
        return wrong(1, "rpoll beside a client that speaks TCP", count);
    }
    text = check_ready(1, awaited, one.revents);
    return text.empty() && !broken_ ? check_mode(1) : text;
}

std::string RsocketPair::connect_to_plain() {
    sockaddr_in address{};
    const int listener = listening(of_kernel, true, address);
    if (listener < 0) {
        return wrong(1, "listen in TCP", -1);
    }
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    auto text = reach_plain(listener, name, false);
    if (text.empty() && !broken_ && dice_.one_in(4)) {
        const bool was_asked = ends_[0].reasons != bit(RDMA_REASON_REMEMBERED);
        close_all();
        for (End &end : ends_) {
            end = {};
            end.sent.begin(dice_.any());
        }
        text = reach_plain(listener, name, was_asked);
    }
    (void)close(listener);
    return text;
}

// Accepts while the other end goes on. Stores -1 where that has failed.
std::string RsocketPair::accept_plain(int listener, int &accepted) const {
    std::array<pollfd, 2> both{pollfd{.fd = fd(0), .events = 0, .revents = 0},
                               pollfd{.fd = listener, .events = POLLIN, .revents = 0}};
    if (const int count = rpoll(both.data(), both.size(), patience_ms); count <= 0) {
        return wrong(0, "rpoll beside a server that speaks TCP", count);
    }
    accepted = both[1].revents != 0 ? ::accept(listener, nullptr, nullptr) : -1;
    return {};
}

// The server gets a request that it does not understand.
std::string RsocketPair::be_asked(int listener, bool may_be_silent) {
    enum class Answer { Closes, ReadsAndCloses, Speaks, IsSilent };
    int asked = -1;
    if (auto text = accept_plain(listener, asked); !text.empty()) {
        return text;
    }
    if (asked < 0) {
        return wrong(0, "rconnect to a server that speaks TCP", -1);
    }
    const bool is_silent = may_be_silent && dice_.one_in(64);
    const auto answer = is_silent ? Answer::IsSilent : static_cast<Answer>(dice_.below(3));
    ends_[0].reasons = bit(is_silent ? RDMA_REASON_PEER_SILENT : RDMA_REASON_PEER_SPEAKS_TCP);
    // Bytes that the program sends meanwhile are kept for the one that answers.
    while (dice_.one_in(2)) {
        if (auto text = send(0); !text.empty() || broken_) {
            (void)close(asked);
            return text;
        }
    }
    std::array<char, 64> room{};
    if (answer == Answer::ReadsAndCloses) {
        (void)::recv(asked, room.data(), room.size(), 0);
    }
    if (answer == Answer::Speaks) {
        room.fill('=');
        (void)::send(asked, room.data(), 1 + dice_.below(room.size()), MSG_NOSIGNAL);
    }
    if (answer == Answer::Closes || answer == Answer::ReadsAndCloses) {
        (void)close(std::exchange(asked, -1));
    }
    auto text = accept_plain(listener, ends_[1].fd);
    if (asked >= 0) {
        (void)close(asked);
    }
    return text;
}

std::string RsocketPair::reach_plain(int listener, const sockaddr *name, bool was_asked) {
    const std::uint16_t port = reinterpret_cast<const sockaddr_in *>(name)->sin_port;
    ends_[0].fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    send_at_once(of_rsockets, fd(0));
    const bool demands = setting_.probe == Probe::Only || dice_.one_in(8);
    if (demands) {
        demand_rdma(0);
    }
    if (const int result = rconnect(fd(0), name, sizeof(sockaddr_in)); result != 0 && errno != EINPROGRESS) {
        return wrong(0, "rconnect to a server that speaks TCP", result);
    }
    ends_[1].calls = &of_kernel;
    std::string text;
    if (option_of(fd(0), SOL_RDMA, RDMA_MODE) == RDMA_MODE_TCP) {
        const bool asks = setting_.probe == Probe::Always;
        ends_[0].reasons = bit(asks ? RDMA_REASON_REMEMBERED : RDMA_REASON_NOT_ASKED);
        text = demands || (asks && !setting_.spoke_tcp.contains(port))
                   ? wrong(0, "RDMA_MODE, of one that is to ask,", RDMA_MODE_TCP)
                   : accept_plain(listener, ends_[1].fd);
    } else if (was_asked && !demands) {
        text = wrong(0, "RDMA_MODE, of one that asked there just now,", RDMA_MODE_OPEN);
    } else {
        text = be_asked(listener, !demands);
    }
    if (!text.empty() || broken_) {
        return text;
    }
    if (demands) {
        return refuse_tcp(0);
    }
    setting_.spoke_tcp.insert(port);
    if (fd(1) < 0) {
        return wrong(0, "the second connection to a server that speaks TCP", -1);
    }
    send_at_once(of_kernel, fd(1));
    (void)fcntl(fd(1), F_SETFL, O_NONBLOCK);
    if (dice_.one_in(2)) {
        text = send(1);
    }
    pollfd one{.fd = fd(0), .events = POLLOUT, .revents = 0};
    if (const int count = rpoll(&one, 1, patience_ms); text.empty() && count != 1) {
        return wrong(0, "rpoll of what connects in TCP", count);
    }
    return text.empty() && !broken_ ? check_mode(0) : text;
}

}  // namespace model
