// SPDX-License-Identifier: BSD-3-Clause
#include "soft/link/memory_link.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <limits>
#include <utility>

#include "base/parts.hpp"
#include "persist/guard.hpp"

namespace soft {

namespace {

using End = SharedRings::End;

// A thread that polls the ring checks once in this many looks whether the peer's process is still there.
constexpr unsigned looks_for_peer = 1024;

std::uint32_t events_of(Interest wanted) {
    return (wanted.readable || wanted.ended ? SharedRings::wants_bytes : 0U) |
           (wanted.writable ? SharedRings::wants_room : 0U);
}

// Copies into or out of a ring, whose bytes wrap. Returns false when the memory of the piece is gone.
template <typename Copy>
bool copy_piece(std::size_t bytes, Copy copy) {
    for (std::size_t done = 0; done < bytes;) {
        const std::size_t count = copy(done, bytes - done);
        if (count == 0) {
            return false;
        }
        done += count;
    }
    return true;
}

}  // namespace

MemoryLink::MemoryLink(SharedRings rings, std::unique_ptr<Link> tcp, bool was_secure)
    : rings_{std::move(rings)},
      tcp_{std::move(tcp)},
      out_{rings_.outgoing()},
      in_{rings_.incoming()},
      bells_{rings_, *tcp_},
      most_unread_{rings_.ring_bytes()},
      was_secure_{was_secure} {}

// A child of fork(2) only closes its copies, and the parent's link is not affected. The peer still reads the
// bytes in the ring, which stays as long as one of the two has it mapped.
MemoryLink::~MemoryLink() {
    if (inherited() || descriptor() < 0) {
        return;
    }
    if (abandoned_) {
        out_.end.store(End::Abandoned, std::memory_order_release);
        tcp_->abandon();
    } else {
        finish();
    }
    in_.closed.store(true, std::memory_order_release);
    (void)shutdown(descriptor(), SHUT_RDWR);
}

// ---- sending ----

int MemoryLink::why_not_send() const {
    if (violated()) {
        return EPROTO;
    }
    if (out_.end.load(std::memory_order_relaxed) != End::None ||
        out_.closed.load(std::memory_order_relaxed)) {
        return EPIPE;
    }
    if (peer_is_gone()) {
        return ECONNRESET;
    }
    return has_given_up() ? ETIMEDOUT : 0;
}

void MemoryLink::note_full() {
    const std::uint64_t used = out_.used.load(std::memory_order_relaxed);
    if (!is_full() || full_used_.load(std::memory_order_relaxed) != used) {
        full_since_.store(base::Clock::now(), std::memory_order_relaxed);
        full_used_.store(used, std::memory_order_relaxed);
    }
}

// TCP has such a limit for a peer that has closed its window. The time begins again when the peer has taken
// something, though less than the sender waits for. A thread that sends may find room meanwhile; then the
// ring is not full any more.
base::Clock::time_point MemoryLink::gives_up_at() const {
    constexpr auto never = base::Clock::time_point::max();
    auto since = full_since_.load(std::memory_order_relaxed);
    if (since == never) {
        return never;
    }
    const std::chrono::milliseconds most = tcp_->user_timeout();
    if (most == std::chrono::milliseconds::zero()) {
        return never;
    }
    const std::uint64_t used = out_.used.load(std::memory_order_relaxed);
    if (full_used_.load(std::memory_order_relaxed) != used) {
        const auto now = base::Clock::now();
        if (!full_since_.compare_exchange_strong(since, now, std::memory_order_relaxed)) {
            return never;
        }
        full_used_.store(used, std::memory_order_relaxed);
        since = now;
    }
    return since + most;
}

std::size_t MemoryLink::room() const {
    // The peer has read the bytes before their room is used again. Sequentially consistent, as rest()
    // needs it.
    const std::uint64_t unread = written() - out_.used.load(std::memory_order_seq_cst);
    return unread < most_unread_ ? most_unread_ - unread : 0;
}

Link::Sent MemoryLink::send(std::span<const iovec> pieces) {
    if (const int error = why_not_send(); error != 0) [[unlikely]] {
        return {.error = error};
    }
    const std::uint64_t begin = written();
    std::size_t room_left = room();
    if (room_left == most_unread_) {
        out_.first.store(begin, std::memory_order_relaxed);  // the ring is empty
    }
    const std::uint64_t first = out_.first.load(std::memory_order_relaxed);
    std::uint64_t end = begin;
    // The room of all bytes is usually in one piece. If the memory of one is gone, the loop finds it.
    const std::size_t all = base::size_of(pieces);
    if (const auto to = rings_.outgoing_bytes(begin - first, all);
        all <= room_left && to.size() == all && persist::guarded_gather(to.data(), pieces)) {
        end += all;
        room_left -= all;
        pieces = {};
    }
    for (const iovec &piece : pieces) {
        const std::size_t bytes = std::min(piece.iov_len, room_left);
        const auto *const from = static_cast<const std::byte *>(piece.iov_base);
        if (!copy_piece(bytes, [&](std::size_t done, std::size_t left) {
                const auto to = rings_.outgoing_bytes(end + done - first, left);
                return persist::guarded_copy(to.data(), from + done, to.size()) ? to.size() : 0;
            })) {
            if (end == begin) {
                return {.error = EFAULT};
            }
            break;
        }
        end += bytes;
        room_left -= bytes;
    }
    if (room_left == 0) {
        note_full();
    } else if (is_full()) {
        full_since_.store(base::Clock::time_point::max(), std::memory_order_relaxed);
    }
    if (end != begin) {
        written_.store(end, std::memory_order_relaxed);
        // This is sequentially consistent with the peer's rest(): either the peer sees the bytes, or this end
        // sees the peer's wish.
        out_.written.store(end, std::memory_order_seq_cst);
        bells_.ring(SharedRings::wants_bytes);
    }
    return {.bytes = static_cast<std::size_t>(end - begin)};
}

bool MemoryLink::finish() {
    auto none = End::None;
    if (out_.end.compare_exchange_strong(none, End::Finished, std::memory_order_seq_cst)) {
        bells_.ring(SharedRings::wants_bytes);
    }
    return true;
}

bool MemoryLink::undelivered() const {
    return !peer_is_gone() && !out_.closed.load(std::memory_order_relaxed) &&
           out_.used.load(std::memory_order_acquire) != written();
}

// ---- receiving ----

Link::Received MemoryLink::receive(std::span<const iovec> pieces) {
    bells_.stop_resting();
    release_used();
    const std::size_t there = unread_bytes();
    if (there == 0 || there > rings_.ring_bytes() || !rings_.has_right_password() ||
        in_.end.load(std::memory_order_relaxed) == End::Abandoned) {
        return nothing_came();
    }
    const std::uint64_t begin = taken();
    // It is the same for all unread bytes, because the sender moves it only while there are none.
    const std::uint64_t first = in_.first.load(std::memory_order_relaxed);
    std::size_t received = 0;
    std::size_t room = 0;
    for (const iovec &piece : pieces) {
        const std::size_t bytes = std::min(piece.iov_len, there - received);
        auto *const to = static_cast<std::byte *>(piece.iov_base);
        if (!copy_piece(bytes, [&](std::size_t done, std::size_t left) {
                const auto from = rings_.incoming_bytes(begin + received + done - first, left);
                return persist::guarded_copy(to + done, from.data(), from.size()) ? from.size() : 0;
            })) {
            if (received == 0) {
                return {.state = Received::State::Failed, .error = EFAULT};
            }
            break;
        }
        received += bytes;
        room += piece.iov_len;
    }
    taken_.store(begin + received, std::memory_order_relaxed);
    vain_looks_ = 0;
    const bool more = received < there || received == room;
    return {.bytes = received, .state = more ? Received::State::More : Received::State::Drained};
}

Link::Received MemoryLink::nothing_came() {
    const auto failed = [](int error) { return Received{.state = Received::State::Failed, .error = error}; };
    // Acquire makes the bytes before the end visible. The password comes before both.
    const End end = in_.end.load(std::memory_order_acquire);
    const std::size_t there = unread_bytes();
    const bool is_unheard = (there != 0 || end != End::None) && !rings_.has_right_password();
    if (there > rings_.ring_bytes() || is_unheard) {
        violated_.store(true, std::memory_order_relaxed);
        return failed(EPROTO);
    }
    if (end == End::Abandoned) {
        return failed(ECONNRESET);
    }
    if (end == End::None && !aborted()) {
        if (++vain_looks_ % looks_for_peer == 0) {
            look_for_peer();
        }
        if (!peer_is_gone()) {
            return {};
        }
    }
    if (unread_bytes() != 0) {
        return {.state = Received::State::More};
    }
    const bool is_heard = aborted() || rings_.has_right_password();
    return reset_by_peer() || !is_heard ? failed(ECONNRESET) : Received{.state = Received::State::Ended};
}

// The bytes that receive() returned before have been placed by now.
void MemoryLink::release_used() {
    if (keeps_room()) {
        const std::uint64_t used = taken();
        released_.store(used, std::memory_order_relaxed);
        in_.used.store(used, std::memory_order_seq_cst);
        // A peer that waits for room gets half of the ring at once, so that it does not wake for each
        // message.
        if (unread_bytes() <= rings_.ring_bytes() / 2) {
            bells_.ring(SharedRings::wants_room);
        }
    }
}

std::size_t MemoryLink::unread_bytes() const {
    // The load makes the bytes visible. It is sequentially consistent, as rest() needs it.
    return in_.written.load(std::memory_order_seq_cst) - taken();
}

// ---- rest ----

void MemoryLink::look_for_peer() const {
    if (!bells_.peer_is_there()) {
        peer_gone_.store(true, std::memory_order_relaxed);
    }
}

void MemoryLink::reported() {
    bells_.stop_resting();
    if (!bells_.take()) {
        peer_gone_.store(true, std::memory_order_relaxed);
    }
}

std::optional<bool> MemoryLink::look() {
    bells_.stop_resting();
    const bool there = is_there({.readable = true, .writable = wants_room_.load(std::memory_order_relaxed)});
    if (!there && wants_bytes_.load(std::memory_order_relaxed)) {
        release_used();
    }
    return there;
}

// A sender that waits for room begins again with half of the ring, so that it does not wake for each message.
bool MemoryLink::is_there(Interest wanted) const {
    const std::size_t much_room = (most_unread_ + 1) / 2;
    const bool ended =
        in_.end.load(std::memory_order_seq_cst) != End::None || peer_is_gone() || aborted() || violated();
    return (wanted.readable && (ended || unread_bytes() != 0)) || (wanted.ended && ended) ||
           (wanted.writable && (why_not_send() != 0 || room() >= much_room));
}

// The events and the loads of is_there() behind them are sequentially consistent, as the peer's are in send()
// and release_used(): either this end sees what the peer did, or the peer sees the wish.
bool MemoryLink::want(Interest interest) {
    const base::Lock lock{resting_mutex_};
    const Interest before = std::exchange(wanted_, interest);
    const bool begins_to_wait = !before.writable && interest.writable;
    wants_bytes_.store(interest.readable, std::memory_order_relaxed);
    wants_room_.store(interest.writable, std::memory_order_relaxed);
    if (bells_.rests()) {
        bells_.wish(events_of(interest));
        // A peer that waits for the room of the last bytes sends none, so nothing else would cause a look.
        const bool keeps = !before.readable && interest.readable && keeps_room();
        return !is_there(interest) && !begins_to_wait && !keeps;
    }
    // The user looks once more, and so learns when the link gives its peer up.
    return !begins_to_wait;
}

bool MemoryLink::rest() {
    bells_.stop_resting();
    if (bells_.has_rung()) {
        reported();
    }
    const base::Lock lock{resting_mutex_};
    if (wanted_.readable) {
        release_used();
    }
    bells_.rest(events_of(wanted_));
    return !is_there(wanted_);
}

// ---- the end ----

void MemoryLink::abort() {
    aborted_.store(true, std::memory_order_relaxed);
    finish();
    in_.closed.store(true, std::memory_order_release);
    (void)shutdown(descriptor(), SHUT_RDWR);
}

Link::Ready MemoryLink::ready() const {
    look_for_peer();
    return {.readable = is_there({.readable = true}) || keeps_room(),
            .writable = is_there({.writable = true}),
            .ended = is_there({.ended = true})};
}

bool MemoryLink::reset_by_peer() const {
    return in_.end.load(std::memory_order_relaxed) == End::None && !aborted() && peer_is_gone() &&
           (was_secure_ || out_.used.load(std::memory_order_relaxed) != written());
}

int MemoryLink::failure() {
    const bool reset = in_.end.load(std::memory_order_relaxed) == End::Abandoned || reset_by_peer();
    const int error = violated() ? EPROTO : reset ? ECONNRESET : has_given_up() ? ETIMEDOUT : 0;
    return error != 0 && !failure_told_.exchange(true) ? error : 0;
}

std::size_t MemoryLink::max_segment() const {
    return std::numeric_limits<std::uint16_t>::max();
}

}  // namespace soft
