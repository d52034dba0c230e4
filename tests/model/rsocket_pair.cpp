// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket_pair.hpp"

#include <fcntl.h>
#include <linux/sockios.h>
#include <rpma/rsocket.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace model {

namespace {

constexpr int patience_ms = 40'000;

// Cuts bytes into parts, some of them empty.
std::vector<iovec> parts_of(Dice &dice, std::span<std::byte> bytes) {
    std::vector<iovec> parts;
    for (std::size_t more = dice.below(4); more != 0; --more) {
        const std::size_t size = dice.below(bytes.size() + 1);
        parts.push_back({.iov_base = bytes.data(), .iov_len = size});
        bytes = bytes.subspan(size);
    }
    parts.push_back({.iov_base = bytes.data(), .iov_len = bytes.size()});
    return parts;
}

}  // namespace

bool RsocketPair::is_break(int error) {
    return error == ECONNRESET || error == EPIPE;
}

std::string RsocketPair::wrong(int end, const char *call, long result) const {
    const std::string error = result < 0 ? std::string{" ("} + std::strerror(errno) + ")" : "";
    return std::string{"end "} + std::to_string(end) + ": " + call + " gives " + std::to_string(result) +
           error + "\n" + state();
}

std::string RsocketPair::broke(int end, const char *call) {
    if (!may_break_ || !is_break(errno)) {
        return wrong(end, call, -1);
    }
    broken_ = true;
    return {};
}

std::string RsocketPair::renew() {
    for (int attempt = 0; attempt < 100; ++attempt) {
        close_all();
        ++times_;
        broken_ = false;
        may_break_ = setting_.may_break;
        std::string text;
        if (dice_.one_in(4)) {
            // By a thread that has ended when the streams are used.
            std::jthread{[&] { text = connect(); }}.join();
        } else {
            text = connect();
        }
        if (!text.empty() || !broken_) {
            return text;
        }
    }
    return "no connection lasts";
}

void RsocketPair::set_waiting(bool waits) const {
    for (const End &end : ends_) {
        (void)rfcntl(end.fd, F_SETFL, waits ? 0 : O_NONBLOCK);
    }
}

bool RsocketPair::at_end(int end) const {
    const End &other = ends_[index(1 - end)];
    return !other.writes && other.sent.on_their_way() == 0;
}

std::string RsocketPair::send(int end, bool must) {
    End &from = ends_[index(end)];
    room_.resize(must ? 1 + dice_.below(100) : dice_.size());
    from.sent.next(room_);
    auto parts = parts_of(dice_, room_);
    const msghdr message{.msg_name = nullptr,
                         .msg_namelen = 0,
                         .msg_iov = parts.data(),
                         .msg_iovlen = parts.size(),
                         .msg_control = nullptr,
                         .msg_controllen = 0,
                         .msg_flags = 0};
    const std::size_t call = dice_.below(4);
    const ssize_t count = call == 0   ? rsend(from.fd, room_.data(), room_.size(), MSG_NOSIGNAL)
                          : call == 1 ? rwrite(from.fd, room_.data(), room_.size())
                          : call == 2 ? rwritev(from.fd, parts.data(), static_cast<int>(parts.size()))
                                      : rsendmsg(from.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) {
        const bool expected = from.writes ? errno == EAGAIN && !must : errno == EPIPE;
        return expected ? "" : broke(end, "send");
    }
    if (!from.writes || static_cast<std::size_t>(count) > room_.size() || (count == 0 && !room_.empty())) {
        return wrong(end, "send", count);
    }
    from.sent.send(static_cast<std::size_t>(count));
    return {};
}

std::string RsocketPair::received(int end, long count, std::span<const std::byte> bytes, bool looked_only) {
    Bytes &theirs = ends_[index(1 - end)].sent;
    if (count == 0) {
        return bytes.empty() || at_end(end) ? "" : wrong(end, "receive, before the end,", 0);
    }
    if (static_cast<std::size_t>(count) > bytes.size() ||
        !theirs.are_next(bytes.first(static_cast<std::size_t>(count)))) {
        return wrong(end, "receive, of other bytes than were sent,", count);
    }
    if (looked_only) {
        return {};
    }
    theirs.receive(static_cast<std::size_t>(count));
    setting_.receives.fetch_add(1, std::memory_order_relaxed);
    return check_placed(end);
}

std::string RsocketPair::receive(int end, bool must) {
    const int socket = fd(end);
    room_.assign(must ? 1 + dice_.below(100) : dice_.size(), std::byte{0xee});
    const bool looks_only = dice_.one_in(8);
    const int flags = (looks_only ? MSG_PEEK : 0) | (dice_.one_in(8) ? MSG_WAITALL : 0) |
                      (dice_.one_in(2) ? MSG_DONTWAIT : 0);
    auto parts = parts_of(dice_, room_);
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const std::size_t call = looks_only ? dice_.below(2) : dice_.below(4);
    const ssize_t count = call == 0   ? rrecv(socket, room_.data(), room_.size(), flags)
                          : call == 1 ? rrecvmsg(socket, &message, flags)
                          : call == 2 ? rread(socket, room_.data(), room_.size())
                                      : rreadv(socket, parts.data(), static_cast<int>(parts.size()));
    if (count < 0) {
        return errno == EAGAIN && !must ? "" : broke(end, "receive");
    }
    return received(end, count, room_, looks_only);
}

std::string RsocketPair::check_ready(int end, short events, short ready) {
    constexpr short unasked = POLLERR | POLLHUP;
    if ((ready & ~(events | unasked)) != 0 || ((ready & POLLERR) != 0 && !may_break_)) {
        return wrong(end, "rpoll or repoll_wait", ready);
    }
    if ((ready & POLLIN) != 0) {
        if (auto text = receive(end, true); !text.empty() || broken_) {
            return text;
        }
    }
    return (ready & POLLOUT) != 0 ? send(end, true) : "";
}

std::string RsocketPair::end_writing(int end) {
    End &here = ends_[index(end)];
    if (rshutdown(here.fd, SHUT_WR) != 0) {
        return broke(end, "rshutdown");
    }
    here.writes = false;
    return {};
}

// Both directions end, for what the one that closes has not read is lost with it.
std::string RsocketPair::close_one(int end, bool resets) {
    End &here = ends_[index(end)];
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    if (resets && rsetsockopt(here.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) != 0) {
        return wrong(end, "SO_LINGER", -1);
    }
    if (rclose(std::exchange(here.fd, -1)) != 0) {
        return wrong(end, "rclose", -1);
    }
    here.writes = here.writes && resets;
    const int other = 1 - end;
    while (!broken_) {
        pollfd one{.fd = fd(other), .events = POLLIN, .revents = 0};
        if (const int count = rpoll(&one, 1, patience_ms); count != 1) {
            return wrong(other, "rpoll of one whose peer closed", count);
        }
        room_.resize(1 + dice_.size());
        const ssize_t count = rrecv(one.fd, room_.data(), room_.size(), 0);
        if (count < 0 && resets && is_break(errno)) {
            return {};
        }
        auto text = count < 0 ? broke(other, "rrecv of what a peer that closed has sent")
                              : received(other, count, room_, false);
        if (!text.empty() || count == 0) {
            return text;
        }
    }
    return {};
}

std::string RsocketPair::settle() {
    while (!broken_ && (ends_[0].sent.on_their_way() != 0 || ends_[1].sent.on_their_way() != 0)) {
        std::array<pollfd, 2> both{};
        for (int end = 0; end < 2; ++end) {
            const bool waits = ends_[index(1 - end)].sent.on_their_way() != 0;
            both[index(end)] = {.fd = waits ? fd(end) : -1, .events = POLLIN, .revents = 0};
        }
        const int count = rpoll(both.data(), both.size(), patience_ms);
        if (count <= 0) {
            return wrong(0, "rpoll while bytes are on their way", count);
        }
        for (int end = 0; end < 2 && !broken_; ++end) {
            if (auto text = check_ready(end, POLLIN, both[index(end)].revents); !text.empty()) {
                return text;
            }
        }
    }
    return {};
}

std::string RsocketPair::state() const {
    std::string text;
    for (int end = 0; end < 2; ++end) {
        const End &one = ends_[index(end)];
        pollfd ready{.fd = one.fd, .events = POLLIN | POLLOUT, .revents = 0};
        (void)rpoll(&ready, 1, 0);
        int unread = -1;
        int unsent = -1;
        (void)ioctl(one.fd, SIOCINQ, &unread);
        (void)ioctl(one.fd, SIOCOUTQ, &unsent);
        text += "  end " + std::to_string(end) + ": fd " + std::to_string(one.fd) +
                (one.writes ? ", writes" : ", does not write") + ", has sent " +
                std::to_string(one.sent.sent()) + " bytes, of which the other has not received " +
                std::to_string(one.sent.on_their_way()) + "; rpoll says " + std::to_string(ready.revents) +
                "; TCP has " + std::to_string(unread) + " bytes to read and " + std::to_string(unsent) +
                " to send\n";
    }
    return text;
}

void RsocketPair::close_all() {
    for (End &end : ends_) {
        if (end.fd >= 0) {
            (void)rclose(std::exchange(end.fd, -1));
        }
    }
}

}  // namespace model
