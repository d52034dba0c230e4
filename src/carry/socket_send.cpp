// SPDX-License-Identifier: BSD-3-Clause
// carry/socket: sending through the ring, or in a turn through TCP.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/interpose.hpp"
#include "base/parts.hpp"
#include "carry/looking.hpp"
#include "carry/meeting.hpp"
#include "carry/moving.hpp"
#include "carry/shake.hpp"
#include "carry/socket.hpp"
#include "carry/sockets.hpp"

namespace carry {

namespace {

using std::chrono::microseconds;

// The kernel is asked as often whether the peer is still there. The kernel's own news of an end takes longer
// to become visible in another process.
constexpr microseconds asks_after{50};
// Bytes that are published at once, so that the receiver copies while the sender does.
constexpr std::uint64_t piece_bytes = std::uint64_t{64} << 10;
// These calls do not try the ring, after the program has sent something that only TCP carries.
constexpr std::uint32_t sends_in_tcp = 16;
// A message that needs a doorbell takes longer than through TCP, one that finds its receiver awake a tenth of
// that. When most messages of up to this size need one, the connection leaves the ring.
constexpr std::size_t small_bytes = 4096;
constexpr int rung_by_one = 3;
constexpr int most_rung = 1024;

}  // namespace

ssize_t Socket::send_linked(int fd, Parts parts, int flags) {
    constexpr int carried = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR;
    const std::size_t bytes = base::size_of(parts);
    std::size_t done = 0;
    std::uint32_t call = 0;
    if (link()->state != Link::Open) {
        Meeting::used(*this, fd, 0);
    }
    leave_with_peer(fd);
    {
        const OutSection section{*this};
        fd = descriptor(fd);
        if (fd < 0) {
            return not_begun;
        }
        if ((flags & ~carried) == 0 && bytes != 0 && are_in_memory(parts)) {
            if (!is_in_ring(out_.turn)) {
                enter_ring(fd);
            }
            if (is_in_ring(out_.turn) && peer_is_there(fd)) {
                done = put(fd, parts, Shake::part_of(out_.count, bytes));
            }
        } else if (bytes != 0) {
            out_.sends_to_wait = sends_in_tcp;
        }
        if (done == bytes && bytes != 0) {
            if (out_.rung > most_rung) {
                leave("most messages find the receiver asleep");
            }
            return static_cast<ssize_t>(done);
        }
        fd = descriptor(fd);
        if (fd < 0) {
            errno = EBADF;
            return done != 0 ? static_cast<ssize_t>(done) : -1;
        }
        const bool waits = (flags & MSG_DONTWAIT) == 0 && blocks();
        if (!waits && !tries_to_leave_ring()) {
            return done != 0 ? static_cast<ssize_t>(done) : -1;
        }
        leave_ring();
        if (Shake::leaves(out_.count)) {
            leave("a test wants it");
        }
        call = locks().sending.begin();
    }
    PartsFrom rest{parts, done, bytes - done};
    const msghdr message = rest.message();
    if (done != 0 ? keeps_error() : fails_with_kept_error()) {
        end_kernels_send(call, 0);
        return done != 0 ? static_cast<ssize_t>(done) : -1;
    }
    if (out_.stays_in_tcp && done == 0 && (events_now(fd, POLLRDHUP) & POLLRDHUP) != 0 && resets(fd)) {
        end_kernels_send(call, 0);
        errno = ECONNRESET;
        return -1;
    }
    const ssize_t sent = LIBC(sendmsg)(fd, &message, done != 0 ? flags | MSG_NOSIGNAL : flags);
    if (sent < 0 && done != 0) {
        keep(errno);
    } else if (sent < 0) {
        (void)told_of(errno);
    }
    end_kernels_send(call, sent);
    return done == 0 ? sent : static_cast<ssize_t>(done) + std::max<ssize_t>(sent, 0);
}

// The receiver does not count the byte. Returns false, with EAGAIN, when the call would have to wait.
bool Socket::begin_urgent(int flags) {
    if (is_linked() && ((flags & MSG_DONTWAIT) != 0 || !blocks())) {
        const OutSection section{*this};
        if (!tries_to_leave_ring()) {
            return false;
        }
    }
    send_in_tcp_for_good("urgent data");
    return true;
}

// Returns false, with EAGAIN, when the call would have to wait, or with an error of the connection.
bool Socket::begin_kernels_send() {
    if (is_linked()) {
        const Inside inside{*this};
        const OutSection section{*this, 1};
        bool may_send = (blocks() || tries_to_leave_ring()) && !fails_with_kept_error();
        if (may_send) {
            leave_ring();
            may_send = !fails_with_kept_error();  // bytes may have been lost just now
        }
        if (!may_send) {
            return false;
        }
        out_.sends_to_wait = sends_in_tcp;
    }
    return true;
}

// The receiver has read all that went through TCP before its present turn, so the list of turns has room.
void Socket::enter_ring(int fd) {
    const Direction &direction = to_peer();
    if (out_.sends_to_wait != 0) {
        --out_.sends_to_wait;
        return;
    }
    if (stays() || out_.stays_in_tcp || link()->state != Link::Open || locks().sending.any() ||
        direction.turns_read.load(std::memory_order_acquire) != out_.turn || direction.refuses != 0 ||
        is_mirror_lost() || !peer_is_there(fd)) {
        return;
    }
    if (!kernel_agrees_to_sent(fd)) {
        stay("bytes passed this library by");
        return;
    }
    // A receiver that was rung for in an earlier turn may sleep still, when another one took the doorbell.
    out_.rung_for = direction.sleeps.load(std::memory_order_seq_cst) - 1;
    begin_turn();
}

void Socket::leave_ring() {
    if (!is_in_ring(out_.turn)) {
        return;
    }
    if (!settles_turn()) {
        if (has_lost_peer()) {
            lose_bytes();
        }
    } else if (is_mirrored() && to_peer().taken != out_.put) {
        wake_before_leaving();
    }
    begin_turn();
}

void Socket::begin_turn() {
    Direction &direction = to_peer();
    Turn &next = direction.turns[++out_.turn % Direction::most_turns];
    next.begin.store(out_.count, std::memory_order_relaxed);
    next.doorbells.store(out_.doorbells, std::memory_order_relaxed);
    direction.turn.store(out_.turn, std::memory_order_seq_cst);
    push();
    publish();
}

// Returns false from the peer's end on: then the kernel says what a call that sends returns.
bool Socket::peer_is_there(int fd) {
    const std::int64_t time = now();
    const bool is_due = time - out_.checked_at > std::chrono::nanoseconds{asks_after}.count();
    if (link()->closed[1 - side_] != 0 || keeps_error() ||
        (is_due && (events_now(fd, POLLRDHUP) & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0)) {
        out_.stays_in_tcp = true;
    } else if (is_due) {
        out_.checked_at = time;
    }
    return !out_.stays_in_tcp;
}

// Puts bytes into the ring until all are there, or it was full for some time. Returns how many.
std::size_t Socket::put(int fd, Parts parts, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes && has_number(fd)) {  // a thread that closes the number waits for the lock
        const std::size_t more = put_once(parts, done, bytes - done);
        if (more == 0 && (out_.stays_in_tcp || !look([this] { return has_any_room(); }))) {
            break;
        }
        if (more != 0) {
            done += more;
            const std::uint64_t rung = out_.doorbells;
            ring_doorbell(fd);
            if (more <= small_bytes) {
                out_.rung = out_.doorbells != rung ? out_.rung + rung_by_one : std::max(out_.rung - 1, 0);
            }
        }
    }
    publish();
    return done;
}

bool Socket::has_any_room() const {
    return out_.put - to_peer().taken.load(std::memory_order_acquire) < Direction::ring_bytes;
}

std::size_t Socket::put_once(Parts parts, std::size_t skip, std::size_t bytes) {
    Direction &direction = to_peer();
    std::uint64_t put = out_.put;
    const std::uint64_t used = put - direction.taken.load(std::memory_order_acquire);
    if (used > Direction::ring_bytes) {
        out_.stays_in_tcp = true;  // the peer says that it took what was not there
        return 0;
    }
    if (used == 0 && !is_mirrored()) {  // begins at the front again, which is in the processor's cache
        out_.origin = put;
        direction.origin.store(put, std::memory_order_relaxed);
        direction.filled_at.store(now(), std::memory_order_relaxed);
    }
    const std::uint64_t size = std::min({Direction::ring_bytes - used, std::uint64_t{bytes}, piece_bytes});
    base::for_pieces(parts, skip, size, [&](std::span<const std::byte> piece, std::size_t before) {
        for_ring_pieces(put - out_.origin + before, piece.size(),
                        [&](std::uint64_t place, std::uint64_t count, std::uint64_t done) {
                            std::memcpy(direction.ring + place, piece.data() + done, count);
                        });
    });
    if (size == 0) {
        return 0;
    }
    out_.count_before = out_.count;
    out_.put_before = put;
    out_.moves.store(true, std::memory_order_release);
    if (direction.refuses != 0 || !direction.put.compare_exchange_strong(put, put + size)) {
        out_.moves.store(false, std::memory_order_relaxed);
        out_.stays_in_tcp = true;  // the receiver refuses more
        return 0;
    }
    out_.put.store(put + size, std::memory_order_seq_cst);
    out_.count.fetch_add(size, std::memory_order_relaxed);
    out_.moves.store(false, std::memory_order_release);
    push();
    return size;
}

// Returns whether a receiver sleeps for which no doorbell was rung.
bool Socket::has_sleeper() {
    const Direction &direction = to_peer();
    const std::uint32_t sleeps = direction.sleeps.load(std::memory_order_seq_cst);
    if (sleeps == out_.rung_for || direction.sleepers.load(std::memory_order_seq_cst) == 0) {
        return std::exchange(out_.rings_once, false);
    }
    out_.rung_for = sleeps;
    out_.rings_once = false;
    return true;
}

// A socket that takes no byte now holds bytes that the receiver has not read, which end its sleep as well. It
// holds none when the receiver has come as far as the ring.
void Socket::ring_doorbell(int fd) {
    const Direction &direction = to_peer();
    if (has_sleeper() && (direction.turns_read.load(std::memory_order_acquire) == out_.turn ||
                          (events_now(fd, POLLOUT) & POLLOUT) != 0)) {
        if (!has_settled_turn()) {
            out_.rings_once = true;  // the agent rings when the turn is settled
            return;
        }
        send_doorbell(fd);
    }
}

// Behind the connection's end nobody sleeps, and the send would take the kernel's error away. A receiver that
// refuses doorbells has read all.
void Socket::send_doorbell(int fd) {
    if ((events_now(fd, 0) & (POLLERR | POLLHUP)) != 0) {
        return;
    }
    Direction &direction = to_peer();
    std::uint64_t rung = direction.doorbells;
    if ((rung & Direction::refused) != 0 || !direction.doorbells.compare_exchange_strong(rung, rung + 1)) {
        return;
    }
    out_.doorbells = rung + 1;
    push();
    send_counted_doorbell(fd);
}

void Socket::send_counted_doorbell(int fd) {
    const char bell = 0;
    if (LIBC(send)(fd, &bell, sizeof(bell), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        keep(errno);
        to_peer().doorbells.fetch_sub(1, std::memory_order_seq_cst);
        --out_.doorbells;
        push();
    }
}

bool Socket::has_room() const {
    const Inside inside{*this};
    if (!is_linked() || stays() || out_.stays_in_tcp || link()->closed[1 - side_] != 0) {
        return false;
    }
    const Direction &direction = to_peer();
    return is_in_ring(direction.turn.load(std::memory_order_relaxed)) &&
           out_.put - direction.taken.load(std::memory_order_acquire) <= Direction::ring_bytes / 2;
}

std::size_t Socket::unsent() const {
    const Inside inside{*this};
    return is_linked() ? out_.put - to_peer().taken.load() : 0;
}

}  // namespace carry
