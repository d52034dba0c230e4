// SPDX-License-Identifier: BSD-3-Clause
// carry/socket: moving bytes by turns, through TCP and through the ring.
#include "carry/socket.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "base/interpose.hpp"
#include "base/log.hpp"
#include "base/parts.hpp"
#include "base/user_memory.hpp"
#include "carry/links.hpp"
#include "carry/looking.hpp"
#include "carry/meeting.hpp"
#include "carry/mirror.hpp"
#include "carry/records.hpp"
#include "carry/shake.hpp"
#include "carry/sockets.hpp"
#include "carry/waits.hpp"

namespace carry {

namespace {

using std::chrono::microseconds;

constexpr const char *its_end = "the program shuts it down";

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

std::int64_t now() {
    return base::Clock::now().time_since_epoch().count();
}
std::int64_t in(microseconds time) {
    return now() + std::chrono::nanoseconds{time}.count();
}

int waiting_bytes(int fd, unsigned long which) {
    int bytes = 0;
    return LIBC(ioctl)(fd, which, &bytes) == 0 ? bytes : -1;
}

// Stands for the link of a socket that was closed while another thread is in a call of it.
constinit Link no_link{};

// A doorbell that is counted arrives in this time, unless its sender has been stopped: that thread may be
// waiting for a processor.
constexpr microseconds waits_for_doorbell{100'000};
// A receive finds bytes in TCP, and takes none, so often in a row at most: a sender explains them at once.
constexpr unsigned most_in_vain = 1000;
// A call drops 64 doorbells. A peer that sends so many at once does not ring for sleeps.
constexpr unsigned most_calls_for_doorbells = 64;
// A thread that has bytes in the kernel's call returns in this time, unless it has been stopped.
constexpr microseconds waits_for_kernel{1'000'000};
// A peer between whose calls its agent answers does so in this time, unless it has been stopped.
constexpr microseconds waits_for_peer{1'000'000};

std::optional<tcp_info> info_of(int fd) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    return LIBC(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? std::optional{info}
                                                                            : std::nullopt;
}

// These bytes of the parts, from `skip` on.
class PartsFrom {
public:
    PartsFrom(Parts parts, std::size_t skip, std::size_t bytes) {
        base::for_pieces(parts, skip, bytes, [this](auto piece, std::size_t) {
            parts_[count_++] = {.iov_base = piece.data(), .iov_len = piece.size()};
        });
    }
    [[nodiscard]] msghdr message() { return base::message_of(parts_.data(), count_); }

private:
    std::array<iovec, IOV_MAX> parts_;
    std::size_t count_ = 0;
};

bool are_in_memory(Parts parts) {
    return std::ranges::all_of(parts, [](const iovec &part) {
        return part.iov_len == 0 || base::may_be_memory(part.iov_base, part.iov_len);
    });
}

// Calls use(place in the ring, how many bytes are there together, how many came before) for bytes from a
// position on, which wrap at the ring's end.
template <typename Use>
void for_ring_pieces(std::uint64_t position, std::uint64_t bytes, Use use) {
    for (std::uint64_t done = 0; done < bytes;) {
        const std::uint64_t place = (position + done) % Direction::ring_bytes;
        const std::uint64_t size = std::min(bytes - done, Direction::ring_bytes - place);
        use(place, size, done);
        done += size;
    }
}

}  // namespace

short Socket::events_now(int fd, short events) {
    pollfd one{.fd = fd, .events = events, .revents = 0};
    return LIBC(poll)(&one, 1, 0) > 0 ? one.revents : short{0};
}

void Socket::begin(Role role, bool blocks, bool is_smc) {
    new (this) Socket{};
    ++locks().sockets;
    role_ = role;
    is_smc_ = is_smc;
    blocks_ = blocks;
    processes_ = 1;
    look_at_ = Meeting::first_look();
    offered_fd_ = -1;
    if (BeginningOf *const beginning = mirrors::beginning_of(*this); beginning != nullptr) {
        beginning->sent.clear();
        beginning->received.clear();
    }
}

void Socket::publish() const {
    registry::Live *const live = records::of(*this);
    if (live == nullptr) {
        return;
    }
    const auto write = [](auto &word, auto value) {
        std::atomic_ref{word}.store(value, std::memory_order_relaxed);
    };
    const auto link = is_far_ ? registry::Link::Device : registry::Link::Memory;
    write(live->link, is_linked() ? link : registry::Link::Tcp);
    write(live->sent_bytes, out_.count.load(std::memory_order_relaxed));
    write(live->received_bytes, in_.count.load(std::memory_order_relaxed));
    write(live->sent_by_link, out_.put.load(std::memory_order_relaxed));
    write(live->received_by_link, in_.taken.load(std::memory_order_relaxed));
    write(live->is_by_device, std::uint64_t{is_far_});
    write(live->turns_back, std::uint64_t{turns_back()});
}

// ---- without a link ----

namespace {

// Keeps what proves to the other end's process that this one has the connection, while it is new.
void keep_first(FirstBytes BeginningOf::*which, const Socket &socket, std::uint64_t offset, Parts parts,
                ssize_t bytes) {
    BeginningOf *const beginning = offset < FirstBytes::most ? mirrors::beginning_of(socket) : nullptr;
    if (beginning != nullptr) {  // of a call of the kernel only some may be known
        (beginning->*which)
            .add(offset, parts, std::min(static_cast<std::uint64_t>(bytes), base::size_of(parts)));
    }
}

}  // namespace

void Socket::sent_unlinked(int fd, Parts parts, ssize_t bytes) {
    if (bytes > 0) {
        const std::uint64_t before =
            out_.count.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
        keep_first(&BeginningOf::sent, *this, before, parts, bytes);
    }
    out_.under_way.fetch_sub(1);
    if (bytes > 0) {
        publish();
        Meeting::used(*this, fd, static_cast<std::uint64_t>(bytes));
    }
}

void Socket::received_unlinked(int fd, Parts parts, ssize_t bytes, int flags) {
    const bool moved = bytes > 0 && (flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE)) == 0;
    if (moved) {
        const std::uint64_t before =
            in_.count.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
        if ((flags & MSG_TRUNC) == 0 && !parts.empty()) {
            keep_first(&BeginningOf::received, *this, before, parts, bytes);
        }
    }
    in_.under_way.fetch_sub(1);
    if (moved) {
        publish();
        Meeting::used(*this, fd, static_cast<std::uint64_t>(bytes));
    }
}

bool Socket::has_connection(int fd) {
    const auto info = info_of(fd);
    constexpr unsigned closed = 7;  // TCP_CLOSE of <netinet/tcp.h>, which cannot stand beside <linux/tcp.h>
    return !info || info->tcpi_state != closed;
}

// The kernel is asked until it agrees, because an acknowledgement may come between the two questions. What it
// has sent are the bytes that went through TCP, and the doorbells.
bool Socket::kernel_agrees_to_sent(int fd) const {
    const std::uint64_t sent = out_.count - out_.put + out_.doorbells + (role_ == Role::Connects ? 1 : 0);
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
    const std::uint64_t taken = in_.count - in_.taken + in_.dropped;
    for (int i = 0; i < 4; ++i) {
        const int unread = waiting_bytes(fd, SIOCINQ);
        const auto info = info_of(fd);
        if (info && unread >= 0 && info->tcpi_bytes_received == taken + static_cast<unsigned>(unread)) {
            return kernel_agrees_to_sent(fd);
        }
    }
    return false;
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

// ---- sending ----

ssize_t Socket::send_linked(int fd, Parts parts, int flags) {
    const Inside inside{*this};
    constexpr int carried = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR;
    const std::size_t bytes = base::size_of(parts);
    std::size_t done = 0;
    if (link()->state != Link::Open) {
        Meeting::used(*this, fd, 0);
    }
    leave_with_peer(fd);
    {
        const Section section{locks().out};
        fd = descriptor(fd);
        if (fd >= 0 && (flags & ~carried) == 0 && bytes != 0 && are_in_memory(parts)) {
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
        out_.under_way.fetch_add(1);
    }
    PartsFrom rest{parts, done, bytes - done};
    const msghdr message = rest.message();
    if (done != 0 ? keeps_error() : fails_with_kept_error()) {
        end_kernels_send(0);
        return done != 0 ? static_cast<ssize_t>(done) : -1;
    }
    if (out_.stays_in_tcp && done == 0 && (events_now(fd, POLLRDHUP) & POLLRDHUP) != 0 && resets(fd)) {
        end_kernels_send(0);
        errno = ECONNRESET;
        return -1;
    }
    const ssize_t sent = LIBC(sendmsg)(fd, &message, done != 0 ? flags | MSG_NOSIGNAL : flags);
    if (sent < 0 && done != 0) {
        keep(errno);
    } else if (sent < 0) {
        (void)told_of(errno);
    }
    end_kernels_send(sent);
    return done == 0 ? sent : static_cast<ssize_t>(done) + std::max<ssize_t>(sent, 0);
}

// The receiver does not count the byte. Returns false, with EAGAIN, when the call would have to wait.
bool Socket::begin_urgent(int flags) {
    if (is_linked() && ((flags & MSG_DONTWAIT) != 0 || !blocks())) {
        const Section section{locks().out};
        if (!tries_to_leave_ring()) {
            return false;
        }
    }
    send_in_tcp_for_good("urgent data");
    return true;
}

// Returns false, with EAGAIN, when the call would have to wait, or with an error of the connection.
bool Socket::begin_kernels_send() {
    out_.under_way.fetch_add(1);
    if (is_linked()) {
        const Section section{locks().out};
        bool may_send = (blocks() || tries_to_leave_ring()) && !fails_with_kept_error();
        if (may_send) {
            leave_ring();
            may_send = !fails_with_kept_error();  // bytes may have been lost just now
        }
        if (!may_send) {
            out_.under_way.fetch_sub(1);
            return false;
        }
        out_.sends_to_wait = sends_in_tcp;
    }
    return true;
}

void Socket::end_kernels_send(ssize_t bytes, std::span<std::byte> first) {
    if (bytes > 0) {
        const std::uint64_t before = out_.count.fetch_add(static_cast<std::uint64_t>(bytes));
        const iovec part{.iov_base = first.data(), .iov_len = first.size()};
        keep_first(&BeginningOf::sent, *this, before, Parts{&part, 1}, bytes);
        publish();
    }
    out_.under_way.fetch_sub(1);
}

bool Socket::keeps_first(std::uint64_t count) const {
    return count < FirstBytes::most && mirrors::beginning_of(*this) != nullptr;
}

std::size_t Socket::peek_in_tcp(int fd, std::span<std::byte> room) {
    if (waiting_bytes(fd, SIOCINQ) <= 0) {
        return 0;  // the call would take an error away, which is the program's
    }
    const int error = errno;
    const ssize_t found = LIBC(recv)(fd, room.data(), room.size(), MSG_PEEK | MSG_DONTWAIT);
    errno = error;
    return static_cast<std::size_t>(std::max<ssize_t>(found, 0));
}

// The receiver has read all that went through TCP before its present turn, so the list of turns has room.
void Socket::enter_ring(int fd) {
    const Direction &direction = to_peer();
    if (out_.sends_to_wait != 0) {
        --out_.sends_to_wait;
        return;
    }
    if (stays() || out_.stays_in_tcp || link()->state != Link::Open || out_.under_way != 0 ||
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

// Puts bytes into the ring until all are there, or it was full for some time. Returns how many.
std::size_t Socket::put(int fd, Parts parts, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes && sockets.at(fd) == this) {  // a thread that closes the number waits for the lock
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
    if (direction.refuses != 0 || !direction.put.compare_exchange_strong(put, put + size)) {
        out_.stays_in_tcp = true;  // the receiver refuses more
        return 0;
    }
    out_.put.store(put + size, std::memory_order_seq_cst);
    out_.count.fetch_add(size, std::memory_order_relaxed);
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

// Behind the connection's end nobody sleeps, and the send would take the kernel's error away.
void Socket::send_doorbell(int fd) {
    if ((events_now(fd, 0) & (POLLERR | POLLHUP)) != 0) {
        return;
    }
    Direction &direction = to_peer();
    direction.doorbells.store(++out_.doorbells, std::memory_order_seq_cst);
    push();
    const char bell = 0;
    if (LIBC(send)(fd, &bell, sizeof(bell), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        keep(errno);
        direction.doorbells.store(--out_.doorbells, std::memory_order_seq_cst);
        push();
    }
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
        const Section section{locks().out};
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
    to.doorbells = out_.doorbells;
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

// ---- receiving ----

ssize_t Socket::receive_linked(int fd, Parts parts, int flags) {
    const Inside inside{*this};
    const std::size_t bytes = base::size_of(parts);
    if ((flags & (MSG_OOB | MSG_ERRQUEUE)) != 0) {
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
    if (link()->state != Link::Open) {
        Meeting::used(*this, fd, 0);
    }
    leave_with_peer(fd);
    const Interruptions handlers;
    for (;;) {
        const std::size_t before = done;
        {
            const InSection section{*this, fd};
            if (fd < 0) {
                return done != 0 ? static_cast<ssize_t>(done) : end_of_closed(nothing);
            }
            const std::uint64_t dropped = in_.dropped;
            std::size_t more = 0;
            do {  // the bytes may be of several turns
                more = (flags & MSG_PEEK) != 0 ? peek(fd, parts, flags) : take(fd, parts, done, flags);
                done += more;
            } while (more != 0 && done < bytes && (flags & MSG_PEEK) == 0 && peers_turn() != in_.turn);
            if (done == before && nothing.result > 0) {
                done += take_unexplained(fd, parts, done, flags, nothing);
                const bool may_be_explained = is_mirrored() && in_.dropped == dropped &&
                                              link()->closed[1 - side_] == Link::NotClosed &&
                                              !is_unexplained_for_long();
                const bool is_in_vain = done == before && !may_be_explained && waiting_bytes(fd, SIOCINQ) > 0;
                in_vain = is_in_vain ? in_vain + 1 : 0;
            }
            if (in_vain > most_in_vain) {
                give_up(fd);
                nothing = {.is_final = true, .result = 0, .error = 0};
            }
            push();
            publish();
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
            const bool sleeps = begin_sleep(fd) && sockets.at(fd) == this;
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
    return sockets.at(fd) == this ? fd : sockets.number_of(sockets.place_of(*this));
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

bool Socket::has_room() const {
    const Inside inside{*this};
    if (!is_linked() || stays() || out_.stays_in_tcp || link()->closed[1 - side_] != 0) {
        return false;
    }
    const Direction &direction = to_peer();
    return is_in_ring(direction.turn.load(std::memory_order_relaxed)) &&
           out_.put - direction.taken.load(std::memory_order_acquire) <= Direction::ring_bytes / 2;
}

// Returns the sender's present turn. It is at most two ahead: another one would not be a sender of this
// library's.
std::uint32_t Socket::peers_turn() const {
    const std::uint32_t turn = from_peer().turn.load(std::memory_order_seq_cst);
    return turn - in_.turn <= 2 ? turn : in_.turn;
}

// Returns how many bytes the ring has, also of turns that have not begun.
std::uint64_t Socket::in_memory() const {
    const std::uint64_t put = from_peer().put.load(std::memory_order_seq_cst) & ~Direction::refused;
    return put - in_.taken <= Direction::ring_bytes ? put - in_.taken : 0;
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
    const Direction &direction = from_peer();
    std::uint64_t sent = direction.doorbells.load(std::memory_order_seq_cst);
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
    return true;
}

// A doorbell may be all that ends the sleep of another receiver, which has not seen it yet. So it is taken
// away only from an empty ring, and the sender rings again for what it puts from here on.
bool Socket::may_drop_doorbells() {
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
    in_.count.fetch_add(bytes, std::memory_order_relaxed);
    in_.taken.store(in_.taken + bytes, std::memory_order_relaxed);
    from_peer().taken.store(in_.taken, std::memory_order_release);
    // A process that is killed with a doorbell in its socket would reset the connection.
    if (in_.dropped != from_peer().doorbells.load(std::memory_order_seq_cst) && in_ring(in_.turn) == 0) {
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
    if (here <= 0 || !is_in_ring(in_.turn) || in_ring(in_.turn) != 0 ||
        in_.dropped != from_peer().doorbells.load(std::memory_order_seq_cst)) {
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
    for (const std::int64_t until = in(waits_for_kernel); in_.under_way != 0 && now() < until;) {
        (void)sched_yield();
    }
}

// ---- waiting ----

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
    const bool has_nothing = peers_turn() == in_.turn && is_in_ring(in_.turn) &&
                             in_.dropped == direction.doorbells.load(std::memory_order_seq_cst);
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

// ---- the rest ----

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
    const std::uint64_t bells = from_peer().doorbells.load(std::memory_order_seq_cst);
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

std::size_t Socket::unsent() const {
    const Inside inside{*this};
    return is_linked() ? out_.put - to_peer().taken.load() : 0;
}

void Socket::send_in_tcp_for_good(const char *why) {
    will_stay(why);
    if (is_linked()) {
        const Section section{locks().out};
        leave_ring();
        out_.stays_in_tcp = true;
    }
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

bool Socket::is_kernels(int fd) {
    constexpr const char *why = "another program gets it";
    send_in_tcp_for_good(why);
    stay(why);
    if (!is_linked()) {
        return true;
    }
    for (const std::int64_t until = in(waits_for_peer); waits_for_answer() && now() < until;) {
        (void)sched_yield();
    }
    const Section section{locks().in};
    advance();
    const bool is_lost = mirrors::of(*this) != nullptr && may_lack_bytes();  // the parent's child has none
    if (waits_for_answer() || is_lost) {
        reset();  // who gets the socket would not get what the peer puts into the ring
        return false;
    }
    return in_memory() == 0 && drops_doorbells_in_time(fd);
}

void Socket::give_away(int fd) {
    const Inside inside{*this};
    if (!is_kernels(fd)) {
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
        (void)sched_yield();
    }
    return true;
}

void Socket::drop_doorbells(int fd) {
    const Inside inside{*this};
    if (is_linked()) {
        const InSection section{*this, fd};
        advance();
        (void)drop_all_doorbells(fd);
        push();
    }
}

void Socket::before_end(int fd) {
    const Inside inside{*this};
    if (!is_linked()) {
        return;
    }
    const Section section{locks().in};
    advance();
    if (is_mirrored()) {
        say_how_it_closes(fd);
    }
    link()->ends[side_] = 1;
    push();
    (void)drops_doorbells_in_time(fd);
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

void Socket::unlink() {
    if (has_link_.exchange(false)) {
        epolls::unlinked(*this);
    }
}

void Socket::stay_for_option() {
    stays_for_option_ = true;
    will_stay("an option that only the kernel's socket has");
}

bool Socket::end() {
    ended_ = drop_link();
    locks().inside.fetch_or(Locks::ended);
    return is_unused();
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

// A mirror unmaps its own, when the peer has what was pushed.
void Socket::unmap(Link *link) const {
    if (is_mirrored() && mirrors::of(*this) != nullptr) {
        mirrors::set(*this, nullptr);
    } else {
        links::unmap(link);
    }
}

void Socket::is_alone_now() {
    if (processes_.exchange(1) != 1) {
        unlink();
        link_ = nullptr;
        offered_ = nullptr;
    }
}

Link *Socket::mapped_link() const {
    Link *const mapped = is_mirrored() ? nullptr : link_.load();
    return mapped != &no_link ? mapped : nullptr;
}

bool Socket::one_process_less() {
    return processes_.fetch_sub(1) == 1;
}

Socket::Counts Socket::counts(std::uint64_t all, std::uint64_t by_link) const {
    return {.by_memory = is_far_ ? 0 : by_link, .by_device = is_far_ ? by_link : 0, .by_tcp = all - by_link};
}

Socket::Counts Socket::received() const {
    return counts(in_.count, in_.taken);
}

Socket::Counts Socket::sent() const {
    return counts(out_.count, out_.put);
}

}  // namespace carry
