// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_connect: the beginning of a pair, in one thread, which is both ends and waits for neither.
#include <netinet/in.h>
#include <poll.h>

#include <cerrno>

#include "../loopback.hpp"
#include "rsocket_pair.hpp"

namespace model {

namespace {

constexpr int patience_ms = 40'000;

// Small sizes make much happen; TCP, with its timers, is only slow with small buffers.
void set_sizes(Dice &dice, int fd, bool may_be_tcp) {
    if (!may_be_tcp && dice.one_in(2)) {
        set_option(of_rsockets, fd, SOL_SOCKET, SO_RCVBUF, 1 + dice.below(dice.one_in(2) ? 300 : 100'000));
        set_option(of_rsockets, fd, SOL_SOCKET, SO_SNDBUF, 1 + dice.below(dice.one_in(2) ? 300 : 100'000));
    }
    set_option(of_rsockets, fd, SOL_RDMA, RDMA_IOMAPSIZE, 2);
    if (dice.one_in(2)) {
        set_option(of_rsockets, fd, SOL_RDMA, RDMA_SQSIZE, 1 + dice.below(100));
        set_option(of_rsockets, fd, SOL_RDMA, RDMA_RQSIZE, 1 + dice.below(100));
        set_option(of_rsockets, fd, SOL_RDMA, RDMA_INLINE, dice.below(300));
    }
}

}  // namespace

int RsocketPair::listening(const Calls &calls, bool may_be_tcp, sockaddr_in &address) {
    address = test::loopback(0);
    socklen_t length = sizeof(address);
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    const int listener = calls.make(AF_INET, SOCK_STREAM, 0);
    if (&calls == &of_rsockets) {
        set_sizes(dice_, listener, may_be_tcp);
    }
    send_at_once(calls, listener);
    const bool listens = listener >= 0 && calls.bind(listener, name, length) == 0 &&
                         calls.listen(listener, 2) == 0 && calls.name(listener, name, &length) == 0;
    return listens ? listener : -1;
}

void RsocketPair::demand_rdma(int end) {
    set_option(of_rsockets, fd(end), SOL_RDMA, RDMA_FALLBACK, 0);
}

std::string RsocketPair::connect() {
    for (End &end : ends_) {
        end = {};
        end.sent.begin(dice_.any());
    }
    const std::size_t choice = dice_.below(8);
    auto text = !setting_.has_plain || choice > 1 ? connect_rsockets()
                : choice == 0                     ? connect_from_plain()
                                                  : connect_to_plain();
    if (text.empty() && !broken_) {
        set_waiting(false);
    }
    return text;
}

// Finds out whether the stream of two rsockets must be TCP, as soon as the first has begun to connect.
std::string RsocketPair::find_mode(std::uint16_t port) {
    if (option_of(fd(0), SOL_RDMA, RDMA_MODE) != RDMA_MODE_TCP) {
        return {};
    }
    const int reason = setting_.probe == Probe::Never ? RDMA_REASON_NOT_ASKED : RDMA_REASON_REMEMBERED;
    if (reason == RDMA_REASON_REMEMBERED && !setting_.spoke_tcp.contains(port)) {
        return wrong(0, "RDMA_MODE, of one that is to ask,", RDMA_MODE_TCP);
    }
    ends_[0].reasons = bit(reason);
    ends_[1].reasons = either_speaks_first;
    return {};
}

std::string RsocketPair::check_mode(int end) const {
    const End &one = ends_[index(end)];
    if (is_plain(end)) {
        return {};
    }
    const int mode = option_of(one.fd, SOL_RDMA, RDMA_MODE);
    const int reason = option_of(one.fd, SOL_RDMA, RDMA_MODE_REASON);
    if (one.reasons == 0) {
        return mode == RDMA_MODE_RDMA && reason == RDMA_REASON_NONE
                   ? ""
                   : wrong(end, "RDMA_MODE of a stream", mode);
    }
    const bool is_silent = ends_[0].sent.sent() == 0 && ends_[1].sent.sent() == 0;
    if (mode == RDMA_MODE_OPEN && is_silent) {
        return {};
    }
    return mode == RDMA_MODE_TCP && (one.reasons & bit(reason)) != 0
               ? ""
               : wrong(end, mode == RDMA_MODE_TCP ? "RDMA_MODE_REASON" : "RDMA_MODE of TCP",
                       mode == RDMA_MODE_TCP ? reason : mode);
}

std::string RsocketPair::connect_rsockets() {
    sockaddr_in address{};
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    const bool may_be_tcp = setting_.probe == Probe::Never;
    const int listener = listening(of_rsockets, may_be_tcp, address);
    if (listener < 0) {
        return wrong(1, "rlisten", -1);
    }
    ends_[0].fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    set_sizes(dice_, fd(0), may_be_tcp);
    send_at_once(of_rsockets, fd(0));
    if (dice_.one_in(8)) {
        demand_rdma(0);
    }
    const int result = rconnect(fd(0), name, sizeof(address));
    const int error = errno;
    if (auto text = find_mode(address.sin_port); !text.empty() || (is_tcp() && !may_be_tcp)) {
        (void)rclose(listener);
        broken_ = true;
        return text;
    }
    if (result == 0 ? !is_tcp() : error != EINPROGRESS) {
        errno = error;
        return wrong(0, "rconnect", result);
    }
    ends_[1].fd = raccept(listener, nullptr, nullptr);
    auto text = fd(1) < 0 ? wrong(1, "raccept", -1) : await_connection();
    (void)rclose(listener);  // as long as it is there, a client knows that a late answer comes
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
    if (const int failed = option_of(fd(0), SOL_SOCKET, SO_ERROR); failed != 0) {
        errno = failed;
        return broke(0, "rconnect");
    }
    return check_mode(0) + check_mode(1);
}

}  // namespace model
