// SPDX-License-Identifier: BSD-3-Clause
// soft/link/bells: how the two ends of a memory link wake each other. An end that rests has said on which
// events it wants to be woken. The other end takes the wish back, and sends a byte on the TCP connection, the
// bell. A bell only causes a look: a peer may ring without a wish, or take a wish back and never ring.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "soft/link/link.hpp"
#include "soft/link/shared_rings.hpp"

namespace soft {

// Any thread rings. rest() and wish() do not run in parallel, because their owner locks. The other functions
// belong to the thread that receives.
class Bells {
public:
    Bells(const SharedRings &rings, const Link &tcp)
        : own_{rings.own_bell().wanted}, peers_{rings.peers_bell().wanted}, tcp_{tcp} {}

    // Rings if the peer wants to be woken on the event. A peer that does not take its bells needs no more of
    // them. The next look notices a peer that is gone.
    void ring(std::uint32_t event) const {
        if ((peers_.load(std::memory_order_seq_cst) & event) != 0 &&
            peers_.exchange(0, std::memory_order_seq_cst) != 0) {
            constexpr std::byte bell{1};
            (void)send(tcp_.descriptor(), &bell, sizeof(bell), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }

    [[nodiscard]] bool rests() const { return rests_.load(std::memory_order_seq_cst); }
    // Begins to rest, and tells the peer on which events this end wants to be woken.
    void rest(std::uint32_t events) {
        rests_.store(true, std::memory_order_seq_cst);
        own_.store(events, std::memory_order_seq_cst);
    }
    // Tells the peer of other events, while this end rests.
    void wish(std::uint32_t events) {
        note(own_.load(std::memory_order_relaxed));
        own_.store(events, std::memory_order_seq_cst);
    }
    // The peer rings no more, because this end looks.
    void stop_resting() {
        if (rests_.load(std::memory_order_relaxed)) {
            rests_.store(false, std::memory_order_relaxed);
            note(own_.exchange(0, std::memory_order_seq_cst));
        }
    }
    // Returns whether the peer has rung since take(), or is about to, as far as its taken wish tells.
    [[nodiscard]] bool has_rung() const { return has_rung_.load(std::memory_order_relaxed); }
    // Takes the bells that have come; usually that is one. When the peer rings more often, the descriptor
    // goes on to report them. Returns false when the peer is gone.
    [[nodiscard]] bool take() {
        has_rung_.store(false, std::memory_order_relaxed);
        std::array<std::byte, 64> bells;
        const ssize_t count = recv(tcp_.descriptor(), bells.data(), bells.size(), MSG_DONTWAIT);
        return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
    }
    // Returns whether the peer is still there, without taking the bells.
    [[nodiscard]] bool peer_is_there() const {
        pollfd socket{.fd = tcp_.descriptor(), .events = POLLRDHUP, .revents = 0};
        return poll(&socket, 1, 0) <= 0;
    }

private:
    void note(std::uint32_t wishes_left) {
        if (wishes_left == 0) {
            has_rung_.store(true, std::memory_order_relaxed);
        }
    }

    std::atomic<std::uint32_t> &own_;
    std::atomic<std::uint32_t> &peers_;
    const Link &tcp_;
    std::atomic<bool> rests_{false};  // changed with the owner's lock, or by the thread that receives
    std::atomic<bool> has_rung_{false};
};

}  // namespace soft
