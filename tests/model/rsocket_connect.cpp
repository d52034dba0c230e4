// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_connect: the beginning of a pair, in one thread, which is both ends and waits for neither.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>

#include "../loopback.hpp"
#include "rsocket_pair.hpp"

namespace model {

namespace {

constexpr int patience_ms = 40'000;

void set_option(int fd, int level, int name, std::size_t value) {
    const int number = static_cast<int>(value);
    (void)rsetsockopt(fd, level, name, &number, sizeof(number));
}

// Small sizes make much happen. Nagle's algorithm is off: a send does not wait for acknowledgements of the
// peer, which may be late.
void set_sizes(Dice &dice, int fd) {
    if (dice.one_in(2)) {
        set_option(fd, SOL_SOCKET, SO_RCVBUF, 1 + dice.below(dice.one_in(2) ? 300 : 100'000));
        set_option(fd, SOL_SOCKET, SO_SNDBUF, 1 + dice.below(dice.one_in(2) ? 300 : 100'000));
    }
    set_option(fd, SOL_RDMA, RDMA_IOMAPSIZE, 2);
    if (dice.one_in(2)) {
        set_option(fd, SOL_RDMA, RDMA_SQSIZE, 1 + dice.below(100));
        set_option(fd, SOL_RDMA, RDMA_RQSIZE, 1 + dice.below(100));
        set_option(fd, SOL_RDMA, RDMA_INLINE, dice.below(300));
    }
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace

int RsocketPair::listening(sockaddr_in &address) {
    address = test::loopback(0);
    socklen_t length = sizeof(address);
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    set_sizes(dice_, listener);
    const bool listens = listener >= 0 && rbind(listener, name, length) == 0 && rlisten(listener, 2) == 0 &&
                         rgetsockname(listener, name, &length) == 0;
    return listens ? listener : -1;
}

std::string RsocketPair::connect() {
    for (End &end : ends_) {
        end = {};
        end.sent.begin(dice_.any());
    }
    sockaddr_in address{};
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    const int listener = listening(address);
    if (listener < 0) {
        return wrong(1, "rlisten", -1);
    }
    ends_[0].fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    set_sizes(dice_, fd(0));
    if (const int result = rconnect(fd(0), name, sizeof(address)); result == 0 || errno != EINPROGRESS) {
        return wrong(0, "rconnect", result);
    }
    ends_[1].fd = raccept(listener, nullptr, nullptr);
    auto text = fd(1) < 0 ? wrong(1, "raccept", -1) : await_connection();
    (void)rclose(listener);
    if (text.empty() && !broken_) {
        set_waiting(false);
    }
    return text;
}

std::string RsocketPair::await_connection() {
    std::array<pollfd, 2> both{pollfd{.fd = fd(0), .events = POLLOUT, .revents = 0},
                               pollfd{.fd = fd(1), .events = POLLOUT, .revents = 0}};
    while (both[0].revents == 0 || both[1].revents == 0) {
        const int count = rpoll(both.data(), both.size(), patience_ms);
        if (count <= 0) {
            return wrong(0, "rpoll of what connects", count);
        }
    }
    int failed = -1;
    socklen_t length = sizeof(failed);
    if (rgetsockopt(fd(0), SOL_SOCKET, SO_ERROR, &failed, &length) != 0 || failed != 0) {
        errno = failed;
        return broke(0, "rconnect");
    }
    return {};
}

}  // namespace model
