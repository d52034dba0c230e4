// SPDX-License-Identifier: BSD-3-Clause
// carry/socket: what a Socket does otherwise when its link is a copy of the peer's, on another host. The
// rules are those of carry/mirror.
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/interpose.hpp"
#include "base/log.hpp"
#include "carry/mirror.hpp"
#include "carry/socket.hpp"
#include "carry/sockets.hpp"
#include "carry/waits.hpp"

namespace carry {

void Socket::push() const {
    if (is_mirrored()) {
        const HeldHandlers held;
        if (Mirror *const mirror = mirrors::of(*this); mirror != nullptr) {
            mirror->push();
        }
    }
}

void Socket::push_and_tell() const {
    const HeldHandlers held;
    if (Mirror *const mirror = is_mirrored() ? mirrors::of(*this) : nullptr; mirror != nullptr) {
        mirror->push_and_tell();
    }
}

bool Socket::is_mirror_lost() const {
    if (!is_mirrored()) {
        return false;
    }
    const Mirror *const mirror = mirrors::of(*this);
    return mirror == nullptr || mirror->is_lost();
}

bool Socket::settles_turn() const {
    if (!is_mirrored()) {
        return true;
    }
    Mirror *const mirror = mirrors::of(*this);
    return mirror != nullptr && mirror->settles_turn();
}

// The same, but waits only for the time of some messages. Later the agent runs answer().
bool Socket::has_settled_turn() const {
    Mirror *const mirror = is_mirrored() ? mirrors::of(*this) : nullptr;
    return !is_mirrored() || (mirror != nullptr && mirror->has_settled_turn());
}

// Returns whether the peer knows of the sleep, and nothing has come since then. A sender rings once for each
// sleep that it is told of: for the first bytes that it puts, or has put, after those that this end knew of.
bool Socket::is_armed() const {
    const Direction &direction = from_peer();
    return in_.is_armed && in_.armed_put == direction.put.load(std::memory_order_seq_cst) &&
           in_.armed_doorbells == direction.doorbells.load(std::memory_order_seq_cst);
}

// With the lock of In. Tells the peer of a sleep.
void Socket::arm() {
    Direction &direction = from_peer();
    in_.armed_put = direction.put.load(std::memory_order_seq_cst);
    in_.armed_doorbells = direction.doorbells.load(std::memory_order_seq_cst);
    in_.is_armed = true;
    direction.sleepers.store(1, std::memory_order_seq_cst);
    direction.sleeps.fetch_add(1, std::memory_order_seq_cst);
    push_and_tell();
}

// With the lock of In. Returns how many of the bytes in TCP are for the program for certain: those of a turn
// that the copy has. The others are doorbells, or their turn is on its way.
std::uint64_t Socket::explained(std::uint64_t in_tcp) const {
    const Direction &direction = from_peer();
    const std::uint32_t present = peers_turn();
    std::uint64_t bytes = 0;
    std::uint64_t bells = in_.dropped;
    for (std::uint32_t turn = in_.turn; turn - in_.turn <= present - in_.turn; ++turn) {
        if (is_in_ring(turn)) {
            continue;
        }
        const std::uint64_t before = direction.turns[turn % Direction::most_turns].doorbells;
        const std::uint64_t rung = before - std::min(before, bells);
        bells = std::max(bells, before);
        in_tcp -= std::min(in_tcp, rung);
        const std::uint64_t here = std::min(in_tcp, left_of(turn));
        bytes += here;
        in_tcp -= here;
    }
    return bytes;
}

// Rule 4. The kernel has an end, or an error that is one.
bool Socket::waits_for_copy(const Nothing &nothing) const {
    if (!nothing.is_final || !is_mirrored() ||
        (nothing.result < 0 && (nothing.error == EAGAIN || nothing.error == EINTR)) || lacks_bytes_) {
        return false;
    }
    const Link &copy = *link();
    const int peer = static_cast<int>(1 - side_);
    const bool is_lost = is_mirror_lost();
    const bool has_left = copy.leaves[peer] != 0 && !is_in_ring(in_.turn) && peers_turn() == in_.turn;
    // How the peer has closed says what a reset was for.
    const bool is_over =
        copy.closed[peer] != 0 || is_lost || (nothing.result == 0 && (copy.ends[peer] != 0 || has_left));
    // Bytes that came before the word that says so came before this look at them.
    return !is_over || (!is_lost && peers_turn() != in_.turn) || in_ring(in_.turn) != 0;
}

// Returns whether the device has lost the peer before that has said that it closes.
bool Socket::has_lost_peer() const {
    return is_mirrored() && is_mirror_lost() && link()->closed[1 - side_] == Link::NotClosed;
}

// In a turn of the ring nobody knows then whether this end's copy has all that the peer has put.
bool Socket::may_lack_bytes() const {
    return lacks_bytes_ || (has_lost_peer() && (is_in_ring(in_.turn) || peers_turn() != in_.turn));
}

// With the lock of In.
void Socket::say_how_it_closes(int fd) {
    linger asked{};
    socklen_t length = sizeof(asked);
    (void)LIBC(getsockopt)(fd, SOL_SOCKET, SO_LINGER, &asked, &length);
    const bool is_unread = in_ring(in_.turn) != 0 || unread_in_tcp(fd) != 0;
    const bool may_reset = is_unread || is_passed_on_ || (asked.l_onoff != 0 && asked.l_linger == 0);
    link()->closed[side_] = may_reset ? Link::Resets : may_end_ ? Link::AfterShutdown : Link::Orderly;
}

// Bytes that come to a socket after its end make the kernel reset the connection. Those in a ring do not: the
// sender finds that the peer has closed and has not taken them. Returns true once for such an end.
bool Socket::closed_unread(int fd) {
    const bool is_reset = is_mirrored() && link()->closed[1 - side_] == Link::Orderly &&
                          to_peer().taken != out_.put && !was_reset_.exchange(true);
    if (is_reset) {
        (void)LIBC(shutdown)(fd, SHUT_WR);
    }
    return is_reset;
}

// A doorbell may be on its way when the peer closes, whose program has read all. Its kernel resets the
// connection then. A peer that has not said how it closes may have reset it because bytes were lost.
bool Socket::closed_with_doorbell() const {
    const Direction &direction = to_peer();
    const std::uint32_t turn = direction.turn;
    const bool is_empty = is_in_ring(turn)
                              ? direction.turns_read == turn
                              : direction.turns[turn % Direction::most_turns].begin == out_.count;
    const std::uint32_t closed = link()->closed[1 - side_];
    return link()->state == Link::Open && (closed == Link::Orderly || closed == Link::AfterShutdown) &&
           is_empty && direction.taken == out_.put;
}

// A receiver may sleep of which this end does not know yet, and the ring has bytes for it. In the turn that
// comes no doorbell can be sent.
void Socket::wake_before_leaving() {
    if (const int fd = sockets.number_of(sockets.place_of(*this)); fd >= 0) {
        send_doorbell(fd);
    }
}

// The agent of this end runs it when the peer's program is about to sleep, or leaves. The peer's copy of the
// sleepers is in this end's copy before its message, and this end has put what it has put: rule 3.
bool Socket::answer(int fd) {
    if (!is_linked()) {
        return true;
    }
    const Inside inside{*this};
    const TrySection section{locks().out};
    if (!section) {
        return false;
    }
    const Mirror *const mirror = mirrors::of(*this);
    if (!is_mirrored() || mirror == nullptr) {
        return true;
    }
    if (is_in_ring(out_.turn) && to_peer().taken != out_.put) {
        ring_doorbell(fd);
    }
    const bool is_refused = to_peer().refuses != 0;
    const bool leaves_first = (mirror->wants_back() || is_refused) && link()->leaves[side_] == 0;
    if ((leaves_first || link()->leaves[1 - side_] != 0) && has_settled_turn()) {
        leave_ring();
        out_.stays_in_tcp = true;
    }
    if (leaves_first && !is_in_ring(out_.turn)) {
        leave(is_refused ? "the other end came back" : "the device has lost the peer");
    }
    return true;
}

void Socket::ask_back(base::Clock::time_point until) {
    const Inside inside{*this};
    if (!is_linked()) {
        return;
    }
    const Section section{locks().out};
    while (is_in_ring(out_.turn) && !is_mirror_lost() && !has_settled_turn() && base::Clock::now() < until) {
    }
    if (is_mirror_lost() || has_settled_turn()) {
        leave("the process forks");
    } else {
        out_.stays_in_tcp = true;
        link()->leaves[side_] = 1;
        push_and_tell();
    }
}

bool Socket::is_cut_off() const {
    Mirror *const mirror = is_mirrored() ? mirrors::of(*this) : nullptr;
    return mirror != nullptr && mirror->is_cut_off();
}

// Leaves the ring if that needs no wait. Otherwise the agent has the program's sets tell of the socket again.
bool Socket::tries_to_leave_ring() {
    if (!is_mirrored() || !is_in_ring(out_.turn)) {
        return true;
    }
    if (!is_mirror_lost() && !has_settled_turn()) {
        wants_news_ = true;
        if (!has_settled_turn() && !is_mirror_lost()) {
            errno = EAGAIN;
            return false;
        }
    }
    leave_ring();
    return true;
}

bool Socket::tells_news() {
    const bool is_told = !wants_news_.exchange(false) || epolls::tell_again(*this);
    if (!is_told) {
        wants_news_ = true;
    }
    return is_told;
}

bool Socket::has_unexplained(int fd) {
    const Inside inside{*this};
    int bytes = 0;
    if (!is_mirrored() || is_mirror_lost() || LIBC(ioctl)(fd, SIOCINQ, &bytes) != 0 || bytes == 0) {
        return false;
    }
    const Section section{locks().in};
    return is_in_ring(in_.turn) && peers_turn() == in_.turn && in_memory() == 0 &&
           in_.dropped == from_peer().doorbells && !is_unexplained_for_long();
}

// With the lock of In. Remembers when it was asked first since the program has read something.
bool Socket::is_unexplained_for_long() {
    const std::uint64_t read = in_.count + in_.dropped;
    const std::int64_t time = base::Clock::now().time_since_epoch().count();
    if (in_.unexplained != read || in_.unexplained_at == 0) {
        in_.unexplained = read;
        in_.unexplained_at = time;
    }
    return time - in_.unexplained_at > std::chrono::nanoseconds{waits_for_word}.count();
}

bool Socket::is_back() const {
    const Inside inside{*this};
    return !is_linked() || !waits_for_back();
}

// Returns whether the peer may put more into the ring.
bool Socket::waits_for_back() const {
    if (!is_mirrored() || link()->state != Link::Open || is_mirror_lost() || link()->ends[1 - side_] != 0) {
        return false;
    }
    return is_in_ring(from_peer().turn.load(std::memory_order_seq_cst));
}

// Returns whether the peer may put more into the ring: it has not answered yet that it has seen the refusal.
// An end that has joined the link does not know whether the peer has opened it.
bool Socket::waits_for_answer() const {
    const Link &copy = *link();
    const bool may_open = copy.state == Link::Open || (copy.state == Link::Joined && copy.maker != side_);
    return is_mirrored() && may_open && !is_mirror_lost() && copy.ends[1 - side_] == 0 &&
           (copy.leaves[1 - side_] == 0 || is_in_ring(from_peer().turn.load(std::memory_order_seq_cst)));
}

// Between two calls of the program nobody but this knows that bytes of the ring may be lost, in one direction
// or the other. A peer that has ended is the usual reason, and TCP says so soon. Behind that end the
// program's next call finds that bytes may be lost.
bool Socket::lost_mirror(int fd, bool is_last) {
    if (!is_linked()) {
        return true;
    }
    const Inside inside{*this};
    const Section section{locks().out};
    out_.stays_in_tcp = true;
    const bool is_in_tcp = !is_in_ring(out_.turn) && !is_in_ring(from_peer().turn) && !lacks_bytes_;
    if (is_in_tcp || !has_lost_peer() || events_now(fd, POLLRDHUP) != 0) {
        return true;
    }
    if (is_last) {
        reset();
    }
    return is_last;
}

// With the lock of Out. The peer does not get what this end has put into the ring. So nothing, and no end,
// may follow it through TCP. As behind a reset, the program reads first what came from the peer, of which a
// process that was killed has sent the last; the agent resets the connection when TCP shows no end
// (lost_mirror()). A forked child has no agent.
void Socket::lose_bytes() {
    if (mirrors::of(*this) == nullptr) {
        reset();
    } else if (!lacks_bytes_.exchange(true)) {
        keep(ECONNRESET);
    }
}

// Ends the connection for both ends, as a reset does: bytes are lost with the device. A connection that the
// kernel has reset stays as it is.
void Socket::reset() {
    lacks_bytes_ = true;
    const int fd = sockets.number_of(sockets.place_of(*this));
    if (fd < 0 || events_now(fd, 0) != 0) {
        return;
    }
    BASE_LOG(Error,
             "descriptor %d: the RDMA device has lost the peer, and with it bytes: the connection is reset",
             fd);
    disconnect(fd);
    kept_error_ = 0;  // the kernel has it
}

// The kernel sends a reset, and keeps the error for this end.
void Socket::disconnect(int fd) {
    const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
    (void)LIBC(connect)(fd, &none, sizeof(none));
}

}  // namespace carry
