// SPDX-License-Identifier: BSD-3-Clause
// carry/socket: receiving the bytes of both, in the order in which they were sent, and waiting for them.
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/interpose.hpp"
#include "base/parts.hpp"
#include "carry/handlers.hpp"
#include "carry/looking.hpp"
#include "carry/meeting.hpp"
#include "carry/moving.hpp"
#include "carry/socket.hpp"
#include "carry/sockets.hpp"

namespace carry {

namespace {

using std::chrono::microseconds;

// A receive finds bytes in TCP, and takes none, so often in a row at most: a sender explains them at once.
constexpr unsigned most_in_vain = 1000;
// A call drops 64 doorbells. A peer that sends so many at once does not ring for sleeps.
constexpr unsigned most_calls_for_doorbells = 64;
// A thread that has bytes in the kernel's call returns in this time, unless it has been stopped.
constexpr microseconds waits_for_kernel{1'000'000};

}  // namespace

ssize_t Socket::receive_linked(int fd, Parts parts, int flags) {
    const std::size_t bytes = base::size_of(parts);
    bool is_kernels_call = (flags & (MSG_OOB | MSG_ERRQUEUE)) != 0;
    const bool only_looks = (flags & MSG_PEEK) != 0 || bytes == 0;
    const auto has_place = [&] { return only_looks ? may_look() : becomes_reader(); };
    if (!is_kernels_call && copy_ != 0) [[unlikely]] {
        const bool may_go_on = has_place();
        if (!may_go_on && !is_past_ring()) {
            errno = ECONNRESET;  // another process reads what comes before
            return -1;
        }
        is_kernels_call = !may_go_on || is_kernels(fd);
        if (is_kernels_call) {
            from_peer().reader = Direction::all_is_read;
            unlink();
        }
    }
    if (is_kernels_call) {
        msghdr message = base::message_of(parts.data(), parts.size());
        return LIBC(recvmsg)(fd, &message, flags);
    }
    // With MSG_TRUNC the bytes are dropped, and the parts only say how many.
    if (const bool is_bad = (flags & MSG_TRUNC) == 0 && !are_in_memory(parts); is_bad || bytes == 0) {
        // As in the kernel, the call waits first.
        char first = 0;
        const iovec one{.iov_base = &first, .iov_len = sizeof(first)};
        const ssize_t there = receive_linked(fd, Parts{&one, 1}, MSG_PEEK | (flags & MSG_DONTWAIT));
        errno = there > 0 && is_bad ? EFAULT : errno;
        return there > 0 ? (is_bad ? -1 : 0) : there;
    }
    const bool waits = (flags & MSG_DONTWAIT) == 0 && blocks();
    const bool waits_for_all = waits && (flags & (MSG_WAITALL | MSG_PEEK)) == MSG_WAITALL;
    std::size_t done = 0;
    Nothing nothing;
    std::int64_t until = 0;  // of the wait for the peer's word
    unsigned in_vain = 0;
    std::int64_t slept_at = 0;  // when the first sleep began
    bool has_looked = false;
    if (link()->state != Link::Open) {
        Meeting::used(*this, fd, 0);
    }
    leave_with_peer(fd);
    const Interruptions handlers;
    for (;;) {
        const std::size_t before = done;
        bool is_of_another_copy = false;
        {
            const InSection section{*this, fd};
            if (fd < 0 && !has_looked) {
                return not_begun;
            }
            if (fd < 0) {
                return done != 0 ? static_cast<ssize_t>(done) : end_of_closed(nothing);
            }
            has_looked = true;
            is_of_another_copy = copy_ != 0 && !has_place();
            const std::uint64_t dropped = in_.dropped;
            std::size_t more = 0;
            do {  // the bytes may be of several turns
                more = is_of_another_copy        ? 0
                       : (flags & MSG_PEEK) != 0 ? peek(fd, parts, flags)
                                                 : take(fd, parts, done, flags);
                done += more;
            } while (more != 0 && done < bytes && (flags & MSG_PEEK) == 0 && peers_turn() != in_.turn);
            // The sender puts other bytes in the place of those that another copy has read meanwhile.
            if (copy_ != 0 && only_looks && !may_look()) [[unlikely]] {
                is_of_another_copy = true;
                done = before;
            }
            if (!is_of_another_copy && done == before && nothing.result > 0) {
                done += take_unexplained(fd, parts, done, flags, nothing);
                const bool may_be_explained = is_mirrored() && in_.dropped == dropped &&
                                              link()->closed[1 - side_] == Link::NotClosed &&
                                              !is_unexplained_for_long();
                const bool is_in_vain = done == before && !may_be_explained && waiting_bytes(fd, SIOCINQ) > 0;
                in_vain = is_in_vain ? in_vain + 1 : 0;
            }
            note_what_is_read();
            if (in_vain > most_in_vain) {
                give_up(fd);
                nothing = {.is_final = true, .result = 0, .error = 0};
            }
            push();
            publish();
        }
        if (is_of_another_copy && done != 0 && !waits_for_all) {
            return static_cast<ssize_t>(done);
        }
        if (is_of_another_copy) {  // or this one has read all of the ring
            const PartsFrom rest{parts, done, bytes - done};
            const ssize_t more = receive_linked(fd, rest.get(), flags);
            return done == 0 ? more : static_cast<ssize_t>(done) + std::max<ssize_t>(more, 0);
        }
        if (done == bytes || (done != 0 && (!waits_for_all || nothing.is_final))) {
            keep(nothing.error);
            return static_cast<ssize_t>(done);
        }
        const bool is_late = nothing.result > 0 || waits_for_copy(nothing);
        if (is_late && done == 0 && !waits && is_cut_off()) {
            wants_news_ = true;
            if (is_cut_off()) {
                errno = EAGAIN;
                return -1;
            }
        }
        if (nothing.is_final && is_late) {
            until = until == 0 ? in(waits_for_word) : until;
            if (now() > until) {
                reset();
            }
            (void)sched_yield();
            continue;
        }
        if (nothing.is_final) {
            return end_of(fd, nothing);
        }
        if (const int error = done == before ? take_error_of_receive() : 0; error != 0) {
            nothing = {.is_final = true, .result = -1, .error = error};
        } else if (done == before && !waits) {
            nothing = sleep(fd, flags);
        } else if (done == before && !comes_soon()) {
            if (handlers.without_restart()) {
                nothing = {.is_final = true, .result = -1, .error = EINTR};
                continue;
            }
            const bool sleeps = begin_sleep(fd) && has_number(fd);
            if (sleeps && slept_at == 0) {
                slept_at = now();
                nothing = sleep(fd, flags);
            } else if (sleeps) {
                nothing = sleep_on(fd, slept_at);
            }
            end_sleep();
        }
    }
}

// With the lock of In or of Out, no thread of this process closes the number that is returned: fd, where it
// is still of this socket, or another one. -1: the program has closed all.
int Socket::descriptor(int fd) const {
    return has_number(fd) ? fd : sockets.number_of(sockets.place_of(*this));
}

// Looks at the ring for a short time. Returns whether bytes came.
bool Socket::comes_soon() const {
    if (!is_in_ring(in_.turn)) {
        return false;
    }
    return look([this] { return has_bytes(); });
}

// Waits in the kernel, as the program's own call would: with its time-out, its signals, and O_NONBLOCK. What
// came may be a doorbell. An end or an error is final; before it there may be bytes in the ring.
Socket::Nothing Socket::sleep(int fd, int flags) {
    char first = 0;
    const ssize_t result = LIBC(recv)(fd, &first, sizeof(first), MSG_PEEK | (flags & MSG_DONTWAIT));
    return {.is_final = result <= 0, .result = result, .error = result < 0 ? errno : 0};
}

// The same, where the call has slept before: its time-out is that of all its sleeps.
Socket::Nothing Socket::sleep_on(int fd, std::int64_t began) {
    timeval limit{};
    socklen_t length = sizeof(limit);
    (void)LIBC(getsockopt)(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, &length);
    const auto time = std::chrono::seconds{limit.tv_sec} + microseconds{limit.tv_usec};
    if (time == microseconds{0}) {
        return sleep(fd, 0);
    }
    const std::chrono::nanoseconds left{began + std::chrono::nanoseconds{time}.count() - now()};
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const timespec rest{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
    pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = left.count() > 0 ? LIBC(ppoll)(&one, 1, &rest, nullptr) : 0;
    if (ready <= 0) {
        return {.is_final = true, .result = -1, .error = ready == 0 ? EAGAIN : errno};
    }
    const Nothing found = sleep(fd, MSG_DONTWAIT);
    return found.error == EAGAIN ? Nothing{} : found;  // another thread was faster
}

std::uint64_t Socket::arrived() const {
    const Inside inside{*this};
    return is_linked() ? from_peer().put.load(std::memory_order_acquire) & ~Direction::refused : 0;
}

std::int64_t Socket::filled_at() const {
    const Inside inside{*this};
    return is_linked() ? from_peer().filled_at.load(std::memory_order_relaxed) : 0;
}

bool Socket::is_partly_in_tcp() const {
    const Inside inside{*this};
    return is_linked() && (!is_in_ring(in_.turn) || peers_turn() != in_.turn);
}

std::uint64_t Socket::arrived_by_tcp(int fd) {
    const Inside inside{*this};
    if (!is_linked()) {
        return 0;
    }
    const InSection section{*this, fd};
    const std::uint64_t bytes = in_.count - in_.taken + unread_in_tcp(fd);
    return bytes * 2 + ((events_now(fd, POLLRDHUP) & POLLRDHUP) != 0 ? 1 : 0);
}

bool Socket::has_ring_bytes() const {
    const Inside inside{*this};
    return is_linked() && is_in_ring(in_.turn) && in_memory() != 0 && peers_turn() == in_.turn;
}

bool Socket::has_bytes() const {
    const Inside inside{*this};
    if (!is_linked()) {
        return false;
    }
    return in_memory() != 0 || peers_turn() != in_.turn;
}

// Returns the sender's present turn. It is at most two ahead: another one would not be a sender of this
// library's.
std::uint32_t Socket::peers_turn() const {
    if (is_past_ring()) [[unlikely]] {
        return in_.turn;
    }
    const std::uint32_t turn = from_peer().turn.load(std::memory_order_seq_cst);
    return turn - in_.turn <= 2 ? turn : in_.turn;
}

// Returns how many bytes the ring has, also of turns that have not begun.
std::uint64_t Socket::in_memory() const {
    if (is_past_ring()) [[unlikely]] {
        return 0;
    }
    const std::uint64_t put = from_peer().put.load(std::memory_order_seq_cst) & ~Direction::refused;
    return put - in_.taken <= Direction::ring_bytes ? put - in_.taken : 0;
}

// Returns how many doorbells the peer has counted.
std::uint64_t Socket::peers_doorbells() const {
    return from_peer().doorbells.load(std::memory_order_seq_cst) & ~Direction::refused;
}

// Begins the next turns, as far as the bytes before them are read.
void Socket::advance() {
    Direction &direction = from_peer();
    while (peers_turn() != in_.turn && left_of(in_.turn) == 0) {
        direction.turns_read.store(++in_.turn, std::memory_order_release);
    }
}

// Returns how many unread bytes the present turn or the one after it has, as far as that is decided.
std::uint64_t Socket::left_of(std::uint32_t turn) const {
    const Direction &direction = from_peer();
    if (peers_turn() == turn) {
        return UINT64_MAX;
    }
    const auto begin_of = [&](std::uint32_t which) {
        return direction.turns[which % Direction::most_turns].begin.load(std::memory_order_relaxed);
    };
    const std::uint64_t end = begin_of(turn + 1);
    return end - std::min<std::uint64_t>(end, turn == in_.turn ? in_.count.load() : begin_of(turn));
}

// Returns how many bytes of the turn the ring has for the program.
std::uint64_t Socket::in_ring(std::uint32_t turn) const {
    if (!is_in_ring(turn)) {
        return 0;
    }
    const std::uint64_t left = left_of(turn);  // first: a later turn may put more
    return std::min(left, in_memory());
}

// Takes away the doorbells of the turn in the ring, or before a turn in TCP those of the turn before it.
// Returns whether all that were sent are gone; others are under way.
bool Socket::drop_all_doorbells(int fd) {
    if (is_past_ring()) [[unlikely]] {
        return true;
    }
    const Direction &direction = from_peer();
    std::uint64_t sent = peers_doorbells();
    if (!is_in_ring(in_.turn)) {
        sent = direction.turns[in_.turn % Direction::most_turns].doorbells.load(std::memory_order_relaxed);
    } else if (peers_turn() != in_.turn) {
        sent =
            direction.turns[(in_.turn + 1) % Direction::most_turns].doorbells.load(std::memory_order_relaxed);
    }
    for (unsigned calls = 0; in_.dropped < sent; ++calls) {
        if (calls == most_calls_for_doorbells || !may_drop_doorbells()) {
            return false;
        }
        std::array<char, 64> bells;
        // A receive that finds no byte would take an error away, which is the program's.
        const auto here = static_cast<std::uint64_t>(std::max(waiting_bytes(fd, SIOCINQ), 0));
        const ssize_t dropped =
            here != 0
                ? LIBC(recv)(fd, bells.data(),
                             std::min({std::uint64_t{bells.size()}, here, sent - in_.dropped}), MSG_DONTWAIT)
                : 0;
        if (dropped <= 0) {
            return false;
        }
        in_.dropped.fetch_add(static_cast<std::uint64_t>(dropped));
    }
    note_what_is_read();
    return true;
}

// A doorbell may be all that ends the sleep of another receiver, which has not seen it yet. So it is taken
// away only from an empty ring, and the sender rings again for what it puts from here on. A copy that does
// not receive leaves doorbells, and the bytes of the ring, to the one that does.
bool Socket::may_drop_doorbells() {
    if (!is_reader() && (in_memory() != 0 || !becomes_reader())) {
        return false;
    }
    Direction &direction = from_peer();
    if (direction.sleepers.load(std::memory_order_seq_cst) == 0) {
        return true;
    }
    if (is_mirrored()) {
        arm();
        return in_ring(in_.turn) == 0;
    }
    direction.sleeps.fetch_add(1, std::memory_order_seq_cst);
    return in_ring(in_.turn) == 0;
}

// Returns how many bytes it has moved to the program; 0 when there are none now.
std::size_t Socket::take(int fd, Parts parts, std::size_t skip, int flags) {
    advance();
    if (!is_in_ring(in_.turn)) {
        const std::size_t bytes =
            drop_all_doorbells(fd) ? take_from_tcp(fd, parts, skip, flags, in_.turn) : 0;
        in_.count.fetch_add(bytes, std::memory_order_relaxed);
        return bytes;
    }
    const std::uint64_t bytes = std::min<std::uint64_t>(in_ring(in_.turn), base::size_of(parts) - skip);
    if (bytes == 0) {
        (void)drop_all_doorbells(fd);
        return 0;
    }
    copy_from_ring(parts, skip, bytes, flags);
    in_.count_before = in_.count;
    in_.taken_before = in_.taken;
    in_.moves.store(true, std::memory_order_release);
    in_.count.fetch_add(bytes, std::memory_order_relaxed);
    in_.taken.store(in_.taken + bytes, std::memory_order_relaxed);
    from_peer().taken.store(in_.taken, std::memory_order_release);
    in_.moves.store(false, std::memory_order_release);
    // A process that is killed with a doorbell in its socket would reset the connection.
    if (in_.dropped != peers_doorbells() && in_ring(in_.turn) == 0) {
        (void)drop_all_doorbells(fd);
    }
    return bytes;
}

// Finds the bytes of the present turn, and those of the next one behind them.
std::size_t Socket::peek(int fd, Parts parts, int flags) {
    advance();
    const std::size_t most = base::size_of(parts);
    if (!is_in_ring(in_.turn)) {
        const std::size_t bytes = drop_all_doorbells(fd) ? take_from_tcp(fd, parts, 0, flags, in_.turn) : 0;
        if (bytes != left_of(in_.turn)) {
            return bytes;
        }
        const std::uint64_t behind = std::min<std::uint64_t>(in_ring(in_.turn + 1), most - bytes);
        copy_from_ring(parts, bytes, behind, flags);  // NOLINT(readability-suspicious-call-argument)
        return bytes + behind;
    }
    const std::uint64_t bytes = std::min<std::uint64_t>(in_ring(in_.turn), most);
    copy_from_ring(parts, 0, bytes, flags);
    const bool is_last = bytes == left_of(in_.turn);
    return (bytes == 0 || is_last) && drop_all_doorbells(fd) && is_last
               ? bytes + take_from_tcp(fd, parts, bytes, flags, in_.turn + 1)
               : bytes;
}

// Asks first how many bytes there are, and only then where the turn ends: so none of them is of a later turn.
std::size_t Socket::take_from_tcp(int fd, Parts parts, std::size_t skip, int flags, std::uint32_t turn) {
    int here = waiting_bytes(fd, SIOCINQ);
    // The kernel counts none at the place of urgent data, though bytes follow. An error is left to sleep().
    if (here == 0 && (events_now(fd, POLLIN) & (POLLIN | POLLERR)) == POLLIN) {
        here = 1;
    }
    if (here <= 0) {
        return 0;
    }
    const std::uint64_t most = std::min({left_of(turn), std::uint64_t{static_cast<unsigned>(here)},
                                         std::uint64_t{base::size_of(parts) - skip}});
    PartsFrom wanted{parts, skip, most};
    msghdr message = wanted.message();
    const ssize_t bytes =
        most != 0 ? LIBC(recvmsg)(fd, &message, MSG_DONTWAIT | (flags & (MSG_PEEK | MSG_TRUNC))) : 0;
    keep(bytes < 0 ? errno : 0);
    return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

// The kernel had a byte, and take() found none. A sender counts a doorbell, and begins a turn, before it
// sends in TCP. So these bytes were sent past the library (io_uring(7), a raw system call), behind what the
// ring had. Between two hosts that is sure when the peer has closed. Before that what explains them is on its
// way, or is lost with the device.
std::size_t Socket::take_unexplained(int fd, Parts parts, std::size_t skip, int flags, Nothing &nothing) {
    const int here = waiting_bytes(fd, SIOCINQ);
    advance();
    const bool may_come = is_mirrored() && link()->closed[1 - side_] == Link::NotClosed;
    if (may_come && !is_mirror_lost() && !is_unexplained_for_long()) {
        (void)sched_yield();
        return 0;
    }
    if (here <= 0 || !is_in_ring(in_.turn) || in_ring(in_.turn) != 0 || in_.dropped != peers_doorbells()) {
        return 0;
    }
    if (may_come) {
        reset();
        nothing = {.is_final = true, .result = 0, .error = 0};
        return 0;
    }
    stay("bytes passed this library by");
    PartsFrom wanted{parts, skip, std::min(static_cast<std::size_t>(here), base::size_of(parts) - skip)};
    msghdr message = wanted.message();
    const ssize_t bytes = LIBC(recvmsg)(fd, &message, MSG_DONTWAIT | (flags & (MSG_PEEK | MSG_TRUNC)));
    return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

// With MSG_TRUNC the program drops the bytes.
void Socket::copy_from_ring(Parts parts, std::size_t skip, std::uint64_t bytes, int flags) const {
    if ((flags & MSG_TRUNC) != 0) {
        return;
    }
    const Direction &direction = from_peer();
    const std::uint64_t position = in_.taken - direction.origin.load(std::memory_order_relaxed);
    base::for_pieces(parts, skip, bytes, [&](std::span<std::byte> piece, std::size_t before) {
        for_ring_pieces(position + before, piece.size(),
                        [&](std::uint64_t place, std::uint64_t count, std::uint64_t done) {
                            std::memcpy(piece.data() + done, direction.ring + place, count);
                        });
    });
}

// The bytes that woke such a call are about to leave the socket. It may wait for a pipe that is full.
void Socket::await_kernels_receives() const {
    if (!is_received_by_kernel()) {
        return;
    }
    KernelCalls &calls = locks().receiving;
    for (const std::int64_t until = in(waits_for_kernel); calls.any_but_late();) {
        if (now() > until) {
            calls.note_late();
        } else {
            (void)sched_yield();
        }
    }
}

// A process that was killed in such a call has not ended it.
bool Socket::is_received_by_kernel() const {
    KernelCalls &calls = locks().receiving;
    const bool is_of_thread =
        processes_ == 1 && __libc_single_threaded != 0 && handlers::of_thread.receives == 0;
    if (calls.any() && is_of_thread) {
        calls.renew();
    }
    return calls.any();
}

// A sender that puts bytes after the sleep is counted rings; the ring is looked at after that.
bool Socket::begin_sleep(int fd) {
    const Inside inside{*this};
    Direction &direction = from_peer();
    if (!is_mirrored()) {
        direction.sleepers.fetch_add(1, std::memory_order_seq_cst);
        direction.sleeps.fetch_add(1, std::memory_order_seq_cst);
    } else if (!is_armed()) {
        const Section section{locks().in};
        advance();
        arm();
    }
    const bool has_nothing =
        peers_turn() == in_.turn && is_in_ring(in_.turn) && in_.dropped == peers_doorbells();
    if (has_nothing) {
        return in_memory() == 0;
    }
    const InSection section{*this, fd};
    advance();
    if (is_in_ring(in_.turn)) {
        (void)drop_all_doorbells(fd);
        advance();
    }
    push();
    return in_ring(in_.turn) == 0;
}

void Socket::end_sleep() {
    const Inside inside{*this};
    if (!is_mirrored()) {
        from_peer().sleepers.fetch_sub(1);
    }
}

bool Socket::is_readable(int fd) {
    const Inside inside{*this};
    const InSection section{*this, fd};
    for (;;) {
        advance();
        if (in_ring(in_.turn) != 0) {
            return true;
        }
        const std::uint64_t before = in_.dropped;
        const bool is_empty = drop_all_doorbells(fd);
        push();
        if (in_.dropped == before && is_mirrored() && is_in_ring(in_.turn)) {  // rule 2
            const short events = events_now(fd, POLLIN | POLLRDHUP);
            const bool is_over = is_mirror_lost() || ((events & POLLIN) != 0 && is_unexplained_for_long());
            return (is_over ? events : events & ~POLLIN) != 0;
        }
        if (in_.dropped == before) {
            return is_empty && (events_now(fd, POLLIN) & POLLIN) != 0;
        }
        if ((events_now(fd, POLLIN) & POLLIN) == 0 && !has_bytes()) {
            return false;
        }
    }
}

std::size_t Socket::unread() const {
    const Inside inside{*this};
    return is_linked() ? in_memory() : 0;
}

// The bytes in TCP may be of two turns, with doorbells before, between and behind them. None are known of a
// sender that has not taken this link yet, after an earlier one.
std::uint64_t Socket::unread_in_tcp(int fd) const {
    const auto in_tcp = static_cast<std::uint64_t>(std::max(waiting_bytes(fd, SIOCINQ), 0));
    if (is_mirrored()) {
        return explained(in_tcp);
    }
    if (is_past_ring()) [[unlikely]] {
        return in_tcp;
    }
    const std::uint64_t bells = peers_doorbells();
    const std::uint64_t unread_bells = bells - std::min<std::uint64_t>(bells, in_.dropped);
    return in_tcp - std::min(in_tcp, unread_bells);
}

int Socket::readable_bytes(int fd) {
    const Inside inside{*this};
    if (!is_linked()) {
        return waiting_bytes(fd, SIOCINQ);
    }
    const InSection section{*this, fd};
    advance();
    (void)drop_all_doorbells(fd);
    return static_cast<int>(std::min<std::uint64_t>(in_memory() + unread_in_tcp(fd), INT_MAX));
}

}  // namespace carry
