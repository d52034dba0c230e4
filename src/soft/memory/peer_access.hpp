// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/peer_access: checks the accesses of one connection's peer: the rights of its queue pair, the
// keys that it has invalidated, and the regions themselves. A refused access is logged, and counted when
// it looks like a guess.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <span>

#include "base/origin.hpp"
#include "base/shared_value.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/memory/invalidated_keys.hpp"
#include "soft/memory/memory.hpp"
#include "soft/memory/offers.hpp"
#include "soft/memory/refusal.hpp"

namespace soft {

// qp_access_flags grant these rights or not, and rdma_cm asks for all of them. Only the region's rights allow
// a flush.
inline constexpr unsigned governed_access =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// It is not thread-safe, except grant() and granted(): its owner locks.
class PeerAccess {
public:
    explicit PeerAccess(const Asker &peer) : peer_{peer} {}
    void begin(const tcp::Address &address) {
        text_ = tcp::text_of(address);
        origin_ = base::origin_of(address);
        invalidated_ = {};
    }
    // Lets the peer, a process of this host, access itself what it has accessed once (Offers::begin()). Ends
    // with withdraw().
    void offer(const Boards &boards, const std::atomic<pid_t> &thread, int socket, pid_t process) {
        offers_.begin(boards, thread, socket, process);
    }
    void withdraw() { offers_.end(); }

    void grant(unsigned access) {
        base::set_shared(withheld_, governed_access & ~access);
        offers_.withdraw_all();
    }
    [[nodiscard]] unsigned granted() const {
        return governed_access & ~withheld_.load(std::memory_order_relaxed);
    }

    // Pins the memory of the peer's access. `refusal` names the access for the log; `read_request` is the
    // body of a read.
    [[nodiscard]] OrRefusal<Pin> pin(const Access &access, const char *refusal,
                                     std::span<const std::byte> read_request = {});
    // Does the same for a write, and keeps the pin until let_go(), so that the writes behind it that have the
    // same key cost a comparison. A thread that deregisters the region waits until then.
    [[nodiscard]] OrRefusal<const MemoryRegion *> pin_for_writes(const Access &access, const char *refusal) {
        const bool is_withheld = (withheld_.load(std::memory_order_relaxed) & access.rights) != 0;
        if (access.key != kept_key_ || access.key == 0 || Memory::changes() != kept_changes_ || is_withheld ||
            !kept_.region().contains(access.address, access.length)) {
            let_go();
            const std::uint64_t changes = Memory::changes();  // read first: a later change ends what is kept
            auto pin = this->pin(access, refusal);
            if (!pin) {
                return std::unexpected{pin.error()};
            }
            kept_ = std::move(*pin);
            kept_key_ = access.key;
            kept_changes_ = changes;
        }
        return &kept_.region();
    }
    void let_go() {
        kept_ = {};
        kept_key_ = 0;
    }
    // Invalidates a key for the peer.
    [[nodiscard]] OrRefusal<> invalidate(std::uint32_t key);

    // Returns whether the peer, or others of its address, have used too many wrong keys.
    [[nodiscard]] bool guesses_keys() const;

    // Notes what the peer has written itself and what is not durable yet.
    void note_written(Durability &durability) { offers_.note_written(durability); }

    [[nodiscard]] const Asker &peer() const { return peer_; }
    // Returns the peer's address, for log lines.
    [[nodiscard]] const tcp::Text &text() const { return text_; }
    [[nodiscard]] const base::Origin &origin() const { return origin_; }

private:
    const Asker peer_;
    tcp::Text text_;
    base::Origin origin_{};
    std::atomic<unsigned> withheld_{0};
    std::uint64_t registrations_seen_ = 0;  // see Memory
    InvalidatedKeys invalidated_;
    Pin kept_;                    // of pin_for_writes()
    std::uint32_t kept_key_ = 0;  // 0, which no region has: there is no such pin
    std::uint64_t kept_changes_ = 0;
    Offers offers_;
};

}  // namespace soft
