// SPDX-License-Identifier: BSD-3-Clause
// rsocket/beginning: how an accepted rsocket becomes a stream or stays TCP.
//
//     what is there     the program reads or waits        it writes or shuts down
//     nothing           waits                             TCP, when the grace is over (probe.hpp)
//     some of the key   waits for the rest, a second      the same
//     the key           a stream begins                   the same
//     anything else     TCP                               the same
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "rsocket/beginning.hpp"
#include "rsocket/kernel_socket.hpp"
#include "rsocket/probe.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

// The first bytes of a request of MPA (RFC 5044 section 7.1).
constexpr std::string_view request_key = "MPA ID Req Frame";

// Looks at the first bytes that have come. Returns how many there are, 0 at the peer's end; nothing when
// there are none yet. An error stays in the socket, which reports it once. It is left for the program,
// because a socket without bytes is not read here.
std::optional<std::size_t> look_at(int fd, std::span<char> first) {
    const auto has_bytes = [fd] {
        int unread = 0;
        return ioctl(fd, SIOCINQ, &unread) == 0 && unread > 0;
    };
    if (!has_bytes()) {
        if (polled(fd, POLLIN | POLLRDHUP) == 0) {
            return std::nullopt;
        }
        if (!has_bytes()) {
            return 0;
        }
    }
    const ssize_t count = recv(fd, first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
    return static_cast<std::size_t>(std::max<ssize_t>(count, 0));
}

}  // namespace

bool Beginning::look_at_request() {
    if (!carrier_.options().may_be_tcp()) {
        return begin_stream(stream::Side::Passive);
    }
    const int fd = carrier_.fd();
    std::array<char, request_key.size()> bytes{};
    const auto count = look_at(fd, bytes);
    if (!count) {
        return lose_to_another();
    }
    const std::string_view came{bytes.data(), *count};
    if (!came.empty() && came == request_key) {
        set_low_water(fd, 1);
        if (decision_time_.has_grace()) {
            forget_tcp(client_of(fd));
        }
        return begin_stream(stream::Side::Passive);
    }
    if (lose_to_another()) {
        return true;
    }
    const bool may_be_request = !came.empty() && request_key.starts_with(came) &&
                                (polled(fd, POLLRDHUP) & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
    if (may_be_request && !decision_time_.is_answer_late()) {
        if (!decision_time_.awaits_answer()) {
            decision_time_.await_answer();
            set_low_water(fd, request_key.size());
        }
        return false;
    }
    stay_tcp(RDMA_REASON_PEER_SPEAKS_TCP);
    return true;
}

// The peer had sent nothing when this thread looked. This thread may not have run since then, so it looks
// again: a request, or the beginning of one, that has come meanwhile came in time.
void Beginning::speak_first() {
    carrier_.mutex().assert_held();
    if (carrier_.state() != Carrier::State::Undecided || due()) {
        return;
    }
    decide();
    if (carrier_.state() == Carrier::State::Undecided && !due() && !lose_to_another()) {
        if (decision_time_.has_grace()) {
            remember_tcp(client_of(carrier_.fd()));
        }
        stay_tcp(RDMA_REASON_SPOKE_FIRST);
    }
}

// That process's device receives and sends the bytes of the connection.
bool Beginning::lose_to_another() {
    carrier_.mutex().assert_held();
    if (!is_marked_as_stream(carrier_.fd())) {
        return false;
    }
    decision_time_.drop_timer();
    carrier_.set_state(Carrier::State::Lost);
    carrier_.list();
    return true;
}

void Beginning::stay_tcp(int reason) {
    carrier_.mutex().assert_held();
    decision_time_.drop_timer();
    carrier_.become_plain(reason);
}

}  // namespace rsockets
