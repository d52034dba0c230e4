// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: how an accepted socket becomes a stream or stays TCP, and what a socket does that is TCP.
//
//     what is there     the program reads or waits        it writes or shuts down
//     nothing           waits                             TCP, when the grace is over (probe.hpp)
//     some of the key   waits for the rest, a second      the same
//     the key           a stream begins                   the same
//     anything else     TCP                               the same
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "rsocket/kernel_socket.hpp"
#include "rsocket/probe.hpp"
#include "rsocket/socket.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

// The first bytes of a request of MPA (RFC 5044 section 7.1).
constexpr std::string_view request_key = "MPA ID Req Frame";

void set_low_water(int fd, std::size_t bytes) {
    const int value = static_cast<int>(bytes);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value));
}

// Looks at the first bytes that have come. Returns how many there are, 0 at the peer's end; nothing when
// there are none yet. An error stays in the socket, which tells it once, to the program: without bytes it is
// not read.
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

bool Socket::decide_by_what_came() {
    if (!options_.may_be_tcp()) {
        return begin_stream(stream::Side::Passive);
    }
    std::array<char, request_key.size()> bytes{};
    const auto count = look_at(fd(), bytes);
    if (!count) {
        return lose_to_another();
    }
    const std::string_view came{bytes.data(), *count};
    if (!came.empty() && came == request_key) {
        set_low_water(fd(), 1);
        if (decision_time_.has_grace()) {
            forget_tcp(client_of(fd()));
        }
        return begin_stream(stream::Side::Passive);
    }
    if (lose_to_another()) {
        return true;
    }
    const bool may_be_request = !came.empty() && request_key.starts_with(came) &&
                                (polled(fd(), POLLRDHUP) & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
    if (may_be_request && !decision_time_.is_answer_late()) {
        if (!decision_time_.awaits_answer()) {
            decision_time_.await_answer();
            set_low_water(fd(), request_key.size());
        }
        return false;
    }
    become_plain(RDMA_REASON_PEER_SPEAKS_TCP);
    return true;
}

// The program has something to say, and there was nothing of the peer's. This thread may not have run since
// it looked: a request, or the beginning of one, that came in the meantime came in time.
void Socket::speak_first() {
    if (state_ != State::Undecided || decision_due()) {
        return;
    }
    decide_now();
    if (state_ == State::Undecided && !decision_due() && !lose_to_another()) {
        if (decision_time_.has_grace()) {
            remember_tcp(client_of(fd()));
        }
        become_plain(RDMA_REASON_SPOKE_FIRST);
    }
}

// That process's device receives what comes there, and sends what goes out.
bool Socket::lose_to_another() {
    if (!is_marked_as_stream(fd())) {
        return false;
    }
    decision_time_.drop_timer();
    state_ = State::Lost;
    list();
    return true;
}

void Socket::set_kernel_blocking(bool blocks) const {
    const int flags = fcntl(fd(), F_GETFL);
    (void)fcntl(fd(), F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

// Everything the program has set goes to the kernel, which has the socket from here on.
void Socket::become_plain(int reason) {
    set_kernel_blocking(blocks_);
    set_low_water(fd(), 1);
    options_.of_stream().apply(fd());
    decision_time_.drop_timer();
    reason_ = reason;
    state_ = State::Plain;
    list();
    waiters_.wake();
}

Result<void> Socket::decide(Use use, int flags) {
    const base::Lock lock{mutex_};
    const bool blocks = blocks_ && (flags & MSG_DONTWAIT) == 0;
    const auto timeout = use == Use::Send ? options_.send_timeout() : options_.receive_timeout();
    return until(blocks, deadline_of(timeout), [&]() -> Result<void> {
        assert_looks();
        if (use == Use::Send) {
            speak_first();
        }
        const bool ended = use == Use::Receive && ends_receiving_;
        return ended || !is_open_yet() || (state_ == State::Offered && stream_->life().was_established())
                   ? Result<void>{}
                   : base::failure(EAGAIN);
    });
}

Result<std::size_t> Socket::receive_plain(msghdr &message, int flags) const {
    const ssize_t count = recvmsg(fd(), &message, flags);
    return count >= 0 ? Result<std::size_t>{static_cast<std::size_t>(count)} : base::last_failure();
}

Result<std::size_t> Socket::send_plain(const msghdr &message, int flags) const {
    const ssize_t count = sendmsg(fd(), &message, flags | MSG_NOSIGNAL);
    return count >= 0 ? Result<std::size_t>{static_cast<std::size_t>(count)} : base::last_failure();
}

}  // namespace rsockets
