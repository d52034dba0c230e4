// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/responder: reads, flushes and atomic operations (RFC 7306 section 5) that the peer asks for.
// A request that waits for storage parks the connection until it is answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/memory/durability.hpp"
#include "soft/memory/peer_access.hpp"
#include "soft/transport/sender.hpp"

namespace soft {

// The owner locks, with the group's lock.
class Responder {
public:
    Responder(Sender &sender, PeerAccess &access, Durability &durability)
        : sender_{sender}, access_{access}, durability_{durability} {}

    // A request with number `msn` arrived.
    [[nodiscard]] Accepted<> read_requested(std::uint32_t msn, std::span<const std::byte> body);
    [[nodiscard]] Accepted<> flush_requested(std::uint32_t msn, std::span<const std::byte> body);
    [[nodiscard]] Accepted<> atomic_requested(std::uint32_t msn, std::span<const std::byte> body);

    // A worker makes durable what an answer waits for: nothing more is received meanwhile.
    [[nodiscard]] bool parked() const { return parked_; }
    // The worker is back, and the connection still goes on.
    [[nodiscard]] Accepted<> unpark();
    // Answers were added since the last call: the sender can transmit.
    [[nodiscard]] bool take_answer_due() { return std::exchange(answer_due_, false); }

private:
    [[nodiscard]] Accepted<> take_turn(std::uint32_t msn);
    void respond(const Response &response);
    [[nodiscard]] Accepted<> respond_when_durable(const Response &response);
    [[nodiscard]] Accepted<> respond_if_durable(const Response &response);

    Sender &sender_;
    PeerAccess &access_;
    Durability &durability_;
    std::uint32_t next_msn_ = 1;
    bool parked_ = false;
    Response parked_response_;
    bool answer_due_ = false;
};

// The program has unmapped memory that is registered, or has cut its file: logs that, and refuses the segment
// that needs it.
[[nodiscard]] std::unexpected<Refusal> memory_vanished(const PeerAccess &access, const MemoryRegion &region,
                                                       const void *place);

}  // namespace soft
