// SPDX-License-Identifier: BSD-3-Clause
// carry/socket: taking a link, and going back to TCP.
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/interpose.hpp"
#include "base/log.hpp"
#include "carry/links.hpp"
#include "carry/meeting.hpp"
#include "carry/mirror.hpp"
#include "carry/moving.hpp"
#include "carry/records.hpp"
#include "carry/sockets.hpp"
#include "carry/waits.hpp"

namespace carry {

namespace {

// Stands for the link of a socket that was closed while another thread is in a call of it.
constinit Link no_link{};

std::optional<tcp_info> info_of(int fd) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    return LIBC(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? std::optional{info}
                                                                            : std::nullopt;
}

}  // namespace

bool Socket::has_connection(int fd) {
    const auto info = info_of(fd);
    constexpr unsigned closed = 7;  // TCP_CLOSE of <netinet/tcp.h>, which cannot stand beside <linux/tcp.h>
    return !info || info->tcpi_state != closed;
}

// The kernel is asked until it agrees, because an acknowledgement may come between the two questions. What it
// has sent are the bytes that went through TCP, and the doorbells.
bool Socket::kernel_agrees_to_sent(int fd) const {
    const std::uint64_t sent = given_to_kernel();
    for (int i = 0; i < 4; ++i) {
        const auto info = info_of(fd);
        const int unacknowledged = waiting_bytes(fd, SIOCOUTQ);
        if (info && unacknowledged >= 0 &&
            info->tcpi_bytes_acked + static_cast<unsigned>(unacknowledged) == sent) {
            return true;
        }
    }
    return false;
}

bool Socket::kernel_agrees(int fd) const {
    const std::uint64_t taken = taken_from_kernel();
    for (int i = 0; i < 4; ++i) {
        const int unread = waiting_bytes(fd, SIOCINQ);
        const auto info = info_of(fd);
        if (info && unread >= 0 && info->tcpi_bytes_received == taken + static_cast<unsigned>(unread)) {
            return kernel_agrees_to_sent(fd);
        }
    }
    return false;
}

// The kernel counts the end of the peer's bytes as one. After the ends of both, or a reset, it does not say
// whether it has; and it counts the bytes that are unread up to urgent data.
std::optional<std::int64_t> Socket::uncounted_in(int fd) const {
    // States of <netinet/tcp.h>: TCP_CLOSE; TCP_CLOSE_WAIT, TCP_LAST_ACK, TCP_CLOSING.
    constexpr unsigned closed = 7;
    constexpr unsigned ends = 1U << 8 | 1U << 9 | 1U << 11;
    const std::uint64_t counted = taken_from_kernel();
    for (int i = 0; i < 4 && (events_now(fd, POLLPRI) & POLLPRI) == 0; ++i) {
        const auto before = info_of(fd);
        const int unread = waiting_bytes(fd, SIOCINQ);
        const auto after = info_of(fd);
        if (before && after && unread >= 0 && before->tcpi_bytes_received == after->tcpi_bytes_received &&
            before->tcpi_state == after->tcpi_state && after->tcpi_state != closed) {
            return static_cast<std::int64_t>(after->tcpi_bytes_received - static_cast<unsigned>(unread) -
                                             (ends >> after->tcpi_state & 1U) - counted);
        }
    }
    return std::nullopt;
}

// Another process may be in the kernel's call, and counts what that sends afterwards.
std::optional<std::int64_t> Socket::uncounted_out(int fd, std::uint32_t own_calls) const {
    const std::uint64_t counted = given_to_kernel();
    for (int i = 0; i < 4 && locks().sending.count() == own_calls && !may_end_; ++i) {
        const auto before = info_of(fd);
        const int unacknowledged = waiting_bytes(fd, SIOCOUTQ);
        const auto after = info_of(fd);
        if (before && after && unacknowledged >= 0 && before->tcpi_bytes_acked == after->tcpi_bytes_acked) {
            return static_cast<std::int64_t>(after->tcpi_bytes_acked + static_cast<unsigned>(unacknowledged) -
                                             counted);
        }
    }
    return std::nullopt;
}

// A process that was killed with the lock may have taken doorbells, or bytes of a turn in TCP behind them,
// which it has not counted. A copy that does not read has counts of its own.
void Socket::count_in(int fd) {
    if (!is_linked() || is_mirrored() || !is_reader()) {
        return;
    }
    if (in_.moves.exchange(false)) {
        in_.count = in_.count_before + (in_.taken - in_.taken_before);
    }
    Direction &direction = from_peer();
    direction.turns_read = in_.turn;
    direction.taken = in_.taken.load();
    const std::int64_t uncounted = std::max<std::int64_t>(uncounted_in(fd).value_or(0), 0);
    const std::uint64_t bells = is_in_ring(in_.turn)
                                    ? peers_doorbells()
                                    : direction.turns[in_.turn % Direction::most_turns].doorbells.load();
    const auto undropped = static_cast<std::int64_t>(bells - std::min<std::uint64_t>(bells, in_.dropped));
    const std::int64_t dropped = std::min(uncounted, undropped);
    in_.dropped += static_cast<std::uint64_t>(dropped);
    if (!is_in_ring(in_.turn)) {
        in_.count += static_cast<std::uint64_t>(uncounted - dropped);
    }
}

// A process that was killed with the lock may have put bytes that it has not counted, may have counted a
// doorbell that it has not sent, or may have been about to ring for a sleep.
void Socket::count_out(std::uint32_t own_calls) {
    if (!is_linked() || is_mirrored()) {
        return;
    }
    const int fd = descriptor(-1);
    if (out_.moves.exchange(false)) {
        const std::uint64_t put = to_peer().put & ~Direction::refused;
        out_.count = out_.count_before + (put - out_.put_before);
        out_.put = put;
    }
    out_.doorbells = to_peer().doorbells & ~Direction::refused;
    out_.rings_once = true;
    const std::int64_t uncounted = uncounted_out(fd, own_calls).value_or(0);
    if (uncounted > 0) {
        out_.count += static_cast<std::uint64_t>(uncounted);
    } else if (uncounted == -1) {
        send_counted_doorbell(fd);
    }
}

std::atomic<int> *Socket::delay(int option) {
    const bool is_delay = option == TCP_NODELAY || option == TCP_CORK;
    return is_linked() && is_delay ? option == TCP_NODELAY ? &no_delay_ : &cork_ : nullptr;
}

void Socket::send_without_delay(int fd) {
    socklen_t length = sizeof(int);
    constexpr int on = 1;
    constexpr int off = 0;
    int value = 0;
    (void)LIBC(getsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length);
    no_delay_ = value;
    (void)LIBC(getsockopt)(fd, IPPROTO_TCP, TCP_CORK, &value, &length);
    cork_ = value;
    (void)LIBC(setsockopt)(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof(off));
    (void)LIBC(setsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// From here on this end sends through TCP, until there is another link.
void Socket::leave(const char *why) {
    leave_ring();
    why_back_ = why;
    records::tell(*this, why);
    out_.stays_in_tcp = true;
    link()->leaves[side_] = 1;
    push_and_tell();
}

// When both ends have left the rings, and what was in both is read, the kernel does everything again.
void Socket::leave_with_peer(int fd) {
    const Link &left = *link();
    if (left.leaves[1 - side_] == 0) {
        return;
    }
    if (left.leaves[side_] == 0) {
        const OutSection section{*this};
        leave("the other end came back");
    }
    bool is_left = false;
    if (epolls::may_rename(*this, fd)) {
        const InSection section{*this, fd};
        advance();
        is_left = !keeps_error() && to_peer().taken == out_.put && peers_turn() == in_.turn &&
                  !is_in_ring(in_.turn) && drop_all_doorbells(fd) && has_link_.exchange(false);
        push();
    }
    if (is_left) {
        epolls::unlinked(*this);
        Meeting::left(*this);
    }
}

// Takes a link, whose counts go on from those of the link before.
void Socket::take_link(Link &link) {
    Direction &to = link.directions[side_];
    to.put.fetch_or(out_.put);  // the other end may refuse already
    to.origin = out_.origin = out_.put;
    to.doorbells.fetch_or(out_.doorbells);
    to.turns[out_.turn % Direction::most_turns].doorbells = out_.doorbells;
    to.turn = out_.turn;
    link.ends[side_] = may_end_ ? 1 : 0;
    Direction &from = link.directions[1 - side_];
    from.taken = in_.taken.load();
    from.turns_read = in_.turn;
    // The peer begins where the link before ended. It may take this link later.
    from.put.fetch_or(in_.taken);
    from.doorbells = in_.dropped.load();
    from.turns[in_.turn % Direction::most_turns].doorbells = in_.dropped.load();
    from.turn = in_.turn;
    out_.rung_for = to.sleeps;
    out_.rings_once = true;
    out_.stays_in_tcp = false;
    out_.rung = 0;
    unmap(link_.exchange(&link));
    in_.is_armed = false;
    is_mirrored_ = is_far_;
    if (is_far_) {
        mirrors::set(*this, mirrors::device()->take(sockets.place_of(*this)));
    }
    has_link_ = true;
    why_back_ = nullptr;
    records::tell(*this, "");
    if (may_end_) {  // another thread may have shut it down meanwhile
        link.ends[side_] = 1;
    }
    push();
}

void Socket::send_in_tcp_for_good(const char *why) {
    will_stay(why);
    if (is_linked()) {
        const OutSection section{*this};
        leave_ring();
        out_.stays_in_tcp = true;
    }
}

void Socket::will_stay(const char *why) {
    const char *known = nullptr;
    if (why_in_tcp_.compare_exchange_strong(known, why)) {
        BASE_LOG(Info, "a connection stays in TCP: %s", why);
        records::tell(*this, why);
        decline();
    }
}

// A peer that has taken a link between two hosts would wait for this end's word when TCP shows an end.
void Socket::decline() const {
    if (is_far_ && !is_linked()) {
        mirrors::device()->decline(sockets.place_of(*this));
    }
}

void Socket::stay(const char *why) {
    will_stay(why);
    if (is_linked() && is_mirrored()) {
        from_peer().refuses = 1;
        push_and_tell();
    } else if (is_linked()) {
        from_peer().put.fetch_or(Direction::refused);
    }
}

void Socket::unlink() {
    if (has_link_.exchange(false)) {
        epolls::unlinked(*this);
    }
}

void Socket::stay_in_tcp(int fd) {
    const int error = errno;
    const bool was_linked = is_linked();
    if (is_kernels(fd) && was_linked) {
        before_shutdown();  // nobody says it later
        unlink();
    }
    errno = error;
}

void Socket::stay_for_option() {
    stays_for_option_ = true;
    will_stay("an option that only the kernel's socket has");
}

Link *Socket::drop_link() {
    Meeting::forget(*this);
    if (link_ == nullptr || link_ == &no_link) {
        return nullptr;
    }
    Link *const dropped = link_.exchange(&no_link);
    std::uint32_t unsaid = Link::NotClosed;
    (void)dropped->closed[side_].compare_exchange_strong(unsaid, Link::Resets);
    push();
    has_link_ = false;
    return dropped;
}

// A mirror unmaps its own, when the peer has what was pushed.
void Socket::unmap(Link *link) const {
    if (is_mirrored() && mirrors::of(*this) != nullptr) {
        mirrors::set(*this, nullptr);
    } else {
        links::unmap(link);
    }
}

bool Socket::finishes_ring() {
    return refuses_doorbells() && in_.dropped == peers_doorbells();
}

void Socket::before_copy() {
    const Section section{locks().in};
    recover_in(sockets.number_of(sockets.place_of(*this)));
    if (is_linked() && !is_of_one_process() && !finishes_ring()) {
        std::uint32_t none = 0;
        (void)copy_.compare_exchange_strong(none, of_the_others);
    }
}

// The device's copy of a link is the agent's, which is with the others.
void Socket::is_alone_now() {
    if (processes_.exchange(1) == 1) {
        return;
    }
    if (copy_ != 0 && is_linked() && !finishes_ring()) {
        copy_ = is_mirrored() ? of_no_reader : from_peer().copies.fetch_add(1) + of_the_others + 1;
        return;
    }
    unlink();
    link_ = nullptr;
    offered_ = nullptr;
    copy_ = 0;
}

// Returns whether this copy reads what the ring has, and drops the doorbells.
bool Socket::becomes_reader() {
    const std::uint32_t own = copy_;
    std::uint32_t reader = 0;
    return own == 0 || (own != of_no_reader &&
                        (from_peer().reader.compare_exchange_strong(reader, own) || reader == own));
}

void Socket::let_copies_go_on() {
    if (is_reader() && finishes_ring()) {
        if (!is_mirrored()) {
            link()->ends[side_] = 1;  // as in is_kernels()
        }
        from_peer().reader = Direction::all_is_read;
    }
}

Link *Socket::mapped_link() const {
    Link *const mapped = is_mirrored() ? nullptr : link_.load();
    return mapped != &no_link ? mapped : nullptr;
}

}  // namespace carry
