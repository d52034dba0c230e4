// SPDX-License-Identifier: BSD-3-Clause
// carry/socket: what the program is told of an error or an end, and how a socket ends.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/interpose.hpp"
#include "base/log.hpp"
#include "carry/mirror.hpp"
#include "carry/moving.hpp"
#include "carry/own_calls.hpp"
#include "carry/sockets.hpp"
#include "carry/waits.hpp"

namespace carry {

namespace {

using std::chrono::microseconds;

constexpr const char *its_end = "the program shuts it down";

// A doorbell that is counted arrives in this time, unless its sender has been stopped: that thread may be
// waiting for a processor.
constexpr microseconds waits_for_doorbell{100'000};
// A peer between whose calls its agent answers does so in this time, unless it has been stopped.
constexpr microseconds waits_for_peer{1'000'000};

}  // namespace

// The kernel's end of a connection is an orderly one, also where a process was killed that had not read all
// of its ring. Returns true once for such an end; then the connection is as after a reset.
bool Socket::resets(int fd) {
    const bool is_killed =
        link()->state == Link::Open && link()->ends[1 - side_] == 0 && (!is_mirrored() || is_mirror_lost());
    const bool is_reset = is_killed && to_peer().taken != out_.put && !was_reset_.exchange(true);
    if (is_reset) {
        (void)LIBC(shutdown)(fd, SHUT_WR);
    }
    return is_reset;
}

// Returns whether a process was killed that had read all but a doorbell: the kernel resets the connection.
bool Socket::ended_by_doorbell() const {
    if (is_mirrored()) {
        return closed_with_doorbell();
    }
    const Direction &direction = to_peer();
    const std::uint32_t turn = direction.turn;
    return link()->state == Link::Open && link()->ends[1 - side_] == 0 && is_in_ring(turn) &&
           direction.turns_read == turn && direction.taken == out_.put;
}

// Another thread has closed the last descriptor during the call. The kernel may have woken the call for bytes
// in TCP; nobody can read these now. After shutdown(2) the call returns the end.
ssize_t Socket::end_of_closed(const Nothing &nothing) const {
    errno = nothing.error != 0 ? nothing.error : EBADF;
    return nothing.is_final ? nothing.result : may_end_ ? 0 : -1;
}

// With the lock of In. No peer that keeps the rules of the link sends such bytes.
void Socket::give_up(int fd) {
    BASE_LOG(Error, "descriptor %d: its peer counts other bytes than it sends: the connection is reset", fd);
    lacks_bytes_ = true;
    link()->ends[side_] = 1;
    disconnect(fd);
    int told = 0;  // the program is told by this library
    socklen_t length = sizeof(told);
    (void)LIBC(getsockopt)(fd, SOL_SOCKET, SO_ERROR, &told, &length);
}

// A call that has bytes leaves an error of the connection to the next one. After the program's own
// shutdown(2) EPIPE is none, and want of memory passes.
void Socket::keep(int error) {
    if (error != 0 && error != EAGAIN && error != EINTR && error != ENOMEM && error != ENOBUFS &&
        (error != EPIPE || !may_end_)) {
        kept_error_ = error;
    }
}

// A reset behind the peer's end is EPIPE, of which the kernel tells only who sends.
int Socket::take_error_of_receive() {
    int error = kept_error_;
    return error != 0 && error != EPIPE && kept_error_.compare_exchange_strong(error, 0) ? error : 0;
}

// Returns true, with the error. Of EPIPE the kernel's own call tells, with its signal.
bool Socket::fails_with_kept_error() {
    const int error = kept_error_.exchange(0);
    if (error == 0 || error == EPIPE) {
        if (lacks_bytes_) {
            reset();
        }
        return false;
    }
    errno = told_of(error);
    return true;
}

int Socket::take_error(int kernels) {
    const int kept = kept_error_.exchange(0);
    const int error = told_of(kernels != 0 ? kernels : kept);
    return error == ECONNRESET && is_reset_by_doorbell() ? 0 : error;
}

bool Socket::is_reset_by_doorbell() const {
    const Inside inside{*this};
    return is_linked() && !may_end_ && ended_by_doorbell();
}

short Socket::events_of(short found) const {
    constexpr short of_reset = POLLERR | POLLHUP;
    const auto events = static_cast<short>(found | (keeps_error() ? POLLERR : 0));
    const auto others = static_cast<short>(events & ~of_reset);
    return events != others && others != 0 && is_reset_by_doorbell() ? others : events;
}

// The program gets to know of a reset once.
int Socket::told_of(int error) {
    was_reset_ = was_reset_ || error == ECONNRESET;
    return error;
}

// Returns what a call returns that has nothing, after the program has read all that came.
ssize_t Socket::end_of(int fd, const Nothing &nothing) {
    if (nothing.result == 0 && is_mirrored()) {
        const Section section{
            locks().out};  // the agent may have been told of an error by its doorbell just now
        if (const int error = take_error_of_receive(); error != 0) {
            return end_of_error(error);
        }
    }
    const InSection section{*this, fd};
    // After reset() the kernel tells of no connection, or of EPIPE where the peer's own reset came just
    // before, behind its end.
    const bool is_end =
        nothing.result == 0 || (lacks_bytes_ && (nothing.error == ENOTCONN || nothing.error == EPIPE));
    if (is_end && ((may_lack_bytes() && !was_reset_.exchange(true)) || resets(fd) || closed_unread(fd))) {
        errno = ECONNRESET;
        return -1;
    }
    return is_end ? 0 : end_of_error(nothing.error);
}

ssize_t Socket::end_of_error(int error) {
    errno = error;
    const bool is_reset = error == ECONNRESET && !was_reset_.exchange(true);
    return is_reset && ended_by_doorbell() ? 0 : -1;
}

void Socket::before_shutdown() {
    send_in_tcp_for_good(its_end);
    if (lacks_bytes_) {
        reset();
    }
    may_end_ = true;
    if (is_mirrored()) {
        const Inside inside{*this};
        link()->ends[side_] = 1;
        push();
    }
    if (is_linked()) {
        link()->ends[side_] = 1;
        epolls::shuts_down(*this);
    }
}

const char *Socket::why_in_tcp() const {
    const char *const why = why_in_tcp_.load();
    return why == nullptr ? why_back_.load() : why != its_end ? why : nullptr;
}

bool Socket::is_kernels(int fd) {
    constexpr const char *why = "another program gets it";
    send_in_tcp_for_good(why);
    stay(why);
    if (!is_linked()) {
        return true;
    }
    for (const std::int64_t until = in(waits_for_peer); waits_for_answer() && now() < until;) {
        wait_a_moment();
    }
    const Section section{locks().in};
    recover_in(fd);
    advance();
    const bool is_lost = mirrors::of(*this) != nullptr && may_lack_bytes();  // the parent's child has none
    if (waits_for_answer() || is_lost) {
        reset();  // who gets the socket would not get what the peer puts into the ring
        return false;
    }
    const bool is_finished = refuses_doorbells() && drops_doorbells_in_time(fd);
    if (is_finished && !is_mirrored()) {
        link()->ends[side_] = 1;  // from here on the kernel alone tells of the end
    }
    return is_finished;
}

bool Socket::refuses_doorbells() {
    if (in_memory() != 0) {
        return false;
    }
    if (!is_mirrored()) {
        from_peer().doorbells.fetch_or(Direction::refused);
    }
    return true;
}

void Socket::give_away(int fd) {
    const Inside inside{*this};
    if (is_kernels(fd)) {
        note_what_is_read();
    } else if (becomes_reader()) {
        const Section section{locks().in};
        cut(fd);
    }
}

// Tells the peer that this end is about to reset the connection, unless it has told how it closes.
void Socket::say_reset() {
    link()->ends[side_] = 1;
    std::uint32_t unsaid = Link::NotClosed;
    (void)link()->closed[side_].compare_exchange_strong(unsaid, Link::Resets);
    push();
}

// Without the unread bytes of the ring the kernel's socket has a gap, for whoever reads it past this library.
// So both ends find the reset, as in TCP when a process ends that has not read all.
void Socket::cut(int fd) {
    if (lacks_bytes_.exchange(true)) {
        return;
    }
    BASE_LOG(Error,
             "descriptor %d: its next reader would not get %zu bytes of the ring: the connection is reset",
             fd, std::size_t{in_memory()});
    say_reset();
    disconnect(fd);
}

bool Socket::drops_doorbells_in_time(int fd) {
    for (const std::int64_t until = in(waits_for_doorbell); !drop_all_doorbells(fd);) {
        if (now() > until) {
            return false;
        }
        wait_a_moment();
    }
    return true;
}

void Socket::drop_doorbells(int fd) {
    const Inside inside{*this};
    if (is_linked() && is_reader()) {
        const InSection section{*this, fd};
        advance();
        (void)drop_all_doorbells(fd);
        push();
    }
}

void Socket::before_end(int fd) {
    const Inside inside{*this};
    if (!is_linked() || !is_reader()) {
        return;
    }
    const Section section{locks().in};
    recover_in(fd);
    advance();
    if (is_mirrored()) {
        say_how_it_closes(fd);
    }
    // Another process may go on with the socket of which this one has a copy. If none does, the peer finds
    // that the ring was not read.
    if (copy_ == 0 || in_memory() == 0) {
        link()->ends[side_] = 1;
    }
    push();
    (void)drops_doorbells_in_time(fd);
    if (copy_ != 0) {
        return;
    }
    // A socket that is closed before all was read resets the connection, and one whose bytes are lost.
    if (in_memory() != 0 && is_passed_on_) {
        cut(fd);
    } else if (in_ring(in_.turn) != 0 || lacks_bytes_ || (has_lost_peer() && is_in_ring(to_peer().turn))) {
        constexpr linger at_once{.l_onoff = 1, .l_linger = 0};
        (void)LIBC(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
}

void Socket::before_disconnect() {
    will_stay("the program has disconnected it");
    const Inside inside{*this};
    if (is_linked()) {
        say_reset();
    }
}

void Socket::was_disconnected() {
    const bool was_linked = is_linked();
    Link *const dropped = drop_link();
    if (dropped != nullptr && locks().inside == 0) {
        unmap(dropped);
    }
    if (was_linked) {
        epolls::unlinked(*this);
    }
}

bool Socket::end() {
    ended_ = drop_link();
    locks().inside.fetch_or(Locks::ended);
    return is_unused();
}

// Returns true once, when it has ended and no thread is inside.
bool Socket::is_unused() const {
    std::uint32_t only_ended = Locks::ended;
    const bool is_unused = locks().inside.compare_exchange_strong(only_ended, 0);
    if (is_unused && ended_ != nullptr) {
        unmap(ended_);
    }
    return is_unused;
}

void Socket::end_late() const {
    if (is_unused()) {
        sockets.give_back(*this);
    }
}

}  // namespace carry
