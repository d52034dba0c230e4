// SPDX-License-Identifier: BSD-3-Clause
// soft/link/memory_link: a link between two processes of one host. It has rings of bytes in memory that both
// have mapped. The TCP connection on which the two met stays: a peer wakes an end that rests with a bell on
// it, and it tells that the peer's process is gone. An end that polls costs its peer no system call. The
// connection's options hold: the link gives up a peer that takes nothing for TCP_USER_TIMEOUT.
//
// The room of the bytes that receive() has returned is the peer's again with the next call, with a look that
// finds nothing, or when the link comes to rest, because the user has placed the bytes by then. A user that
// does not read may not have placed them; it looks once more when it reads on (want()). So undelivered() is
// false only when all sent bytes are placed.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "soft/link/bells.hpp"
#include "soft/link/link.hpp"
#include "soft/link/shared_rings.hpp"

namespace soft {

class MemoryLink final : public Link, private base::Inheritable {
public:
    // `tcp` is the link on which the two ends agreed, and this end has received all that was sent on it. With
    // `was_secure`, it carried TLS, and so a connection that ends without the peer's word has failed.
    MemoryLink(SharedRings rings, std::unique_ptr<Link> tcp, bool was_secure = false);
    ~MemoryLink() override;

    [[nodiscard]] bool gains_by_batches() const override { return false; }  // it makes no system call
    [[nodiscard]] Sent send(std::span<const iovec> pieces) override;
    bool finish() override;
    [[nodiscard]] Received receive(std::span<const iovec> pieces) override;
    void abort() override;
    void abandon() override { abandoned_ = true; }
    [[nodiscard]] int descriptor() const override { return tcp_->descriptor(); }
    // A bell of any kind is a byte to read.
    [[nodiscard]] Interest watched(Interest wanted) const override {
        return {.readable = wanted != Interest{}};
    }
    [[nodiscard]] bool want(Interest interest) override EXCLUDES(resting_mutex_);
    [[nodiscard]] bool rest() override EXCLUDES(resting_mutex_);
    void reported() override;
    [[nodiscard]] std::optional<bool> look() override;
    [[nodiscard]] bool own_lent_descriptor() override { return tcp_->own_lent_descriptor(); }
    [[nodiscard]] base::Fd take_descriptor() override { return tcp_->take_descriptor(); }
    [[nodiscard]] Ready ready() const override;
    [[nodiscard]] int failure() override;
    [[nodiscard]] std::size_t unread_bytes() const override;
    [[nodiscard]] bool undelivered() const override;
    [[nodiscard]] base::Clock::time_point gives_up_at() const override;
    void limit_unsent(std::size_t bytes) override {
        most_unread_ = std::clamp<std::size_t>(bytes, 1, rings_.ring_bytes());
    }
    [[nodiscard]] SharedPieces shared_pieces() const override {
        return {.own = rings_.own_piece(), .peers = rings_.peers_piece(), .process = rings_.peers_process()};
    }
    [[nodiscard]] const char *name() const override { return "memory"; }
    [[nodiscard]] std::size_t max_segment() const override;

private:
    [[nodiscard]] int why_not_send() const;
    void note_full();
    [[nodiscard]] bool is_full() const {
        return full_since_.load(std::memory_order_relaxed) != base::Clock::time_point::max();
    }
    // Returns how many bytes send() takes now. It takes none when the peer's counter is impossible.
    [[nodiscard]] std::size_t room() const;
    [[nodiscard]] bool has_given_up() const { return is_full() && base::Clock::now() >= gives_up_at(); }
    [[nodiscard]] Received nothing_came();
    // Returns whether the peer does not have the room of received bytes again.
    [[nodiscard]] bool keeps_room() const { return released_.load(std::memory_order_relaxed) != taken(); }
    void release_used();
    void look_for_peer() const;
    [[nodiscard]] bool is_there(Interest wanted) const;
    [[nodiscard]] bool peer_is_gone() const { return peer_gone_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool violated() const { return violated_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t written() const { return written_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }
    // Returns whether the peer ended without an end of its bytes, and has not read everything. After TLS it
    // does not matter what the peer has read.
    [[nodiscard]] bool reset_by_peer() const;

    SharedRings rings_;
    const std::unique_ptr<Link> tcp_;
    SharedRings::Direction &out_;
    SharedRings::Direction &in_;
    Bells bells_;

    // This process's own counters, which the peer cannot change.
    std::atomic<std::uint64_t> written_{0};   // by the thread that sends
    std::atomic<std::uint64_t> taken_{0};     // by the thread that receives
    std::atomic<std::uint64_t> released_{0};  // of these, the bytes whose room the peer has again
    std::size_t most_unread_;
    // While the ring is full: since when the peer has taken nothing, and what it had taken by then.
    mutable std::atomic<base::Clock::time_point> full_since_{base::Clock::time_point::max()};
    mutable std::atomic<std::uint64_t> full_used_{0};
    unsigned vain_looks_ = 0;
    const bool was_secure_;
    bool abandoned_ = false;

    mutable std::atomic<bool> peer_gone_{false};  // its process or its end of the TCP connection is gone
    std::atomic<bool> violated_{false};           // the peer wrote impossible counters
    std::atomic<bool> aborted_{false};
    std::atomic<bool> failure_told_{false};

    base::Mutex resting_mutex_;  // no other lock is taken with it
    Interest wanted_ GUARDED_BY(resting_mutex_){.readable = true};
    // wanted_.readable and wanted_.writable; changed with the mutex
    std::atomic<bool> wants_bytes_{true};
    std::atomic<bool> wants_room_{false};
};

}  // namespace soft
