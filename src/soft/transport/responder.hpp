// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/responder: serves the peer's reads, flushes and atomic operations (RFC 7306 section 5). A
// request that waits for storage parks the connection until it is answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "soft/memory/durability.hpp"
#include "soft/memory/peer_access.hpp"
#include "soft/transport/sender.hpp"

namespace soft {

// The owner calls it with the group's lock held.
class Responder {
public:
    Responder(Sender &sender, PeerAccess &access, Durability &durability)
        : sender_{sender}, access_{access}, durability_{durability} {}

    void begin() {
        next_msn_ = 1;
        parked_.reset();
        answer_due_ = false;
    }
    // These take a request with number `msn`.
    [[nodiscard]] OrRefusal<> read_requested(std::uint32_t msn, std::span<const std::byte> body);
    [[nodiscard]] OrRefusal<> flush_requested(std::uint32_t msn, std::span<const std::byte> body);
    [[nodiscard]] OrRefusal<> atomic_requested(std::uint32_t msn, std::span<const std::byte> body);

    // Returns whether an answer waits for a worker that makes bytes durable. Meanwhile no bytes are received.
    [[nodiscard]] bool parked() const { return parked_.has_value(); }
    // Is called when the worker has finished and the connection has not ended.
    [[nodiscard]] OrRefusal<> unpark();
    // Returns whether answers were added since the last call; then the sender can transmit.
    [[nodiscard]] bool take_answer_due() { return std::exchange(answer_due_, false); }

private:
    [[nodiscard]] OrRefusal<> take_turn(std::uint32_t msn);
    void respond(const Response &response);
    [[nodiscard]] OrRefusal<> respond_when_durable(const Response &response);
    [[nodiscard]] OrRefusal<> respond_if_durable(const Response &response);

    Sender &sender_;
    PeerAccess &access_;
    Durability &durability_;
    std::uint32_t next_msn_ = 1;
    std::optional<Response> parked_;  // the answer that waits for a worker
    bool answer_due_ = false;
};

// Logs that the program has unmapped registered memory, or truncated its file, and refuses the segment that
// needs the memory.
[[nodiscard]] std::unexpected<Refusal> memory_vanished(const PeerAccess &access, const MemoryRegion &region,
                                                       const void *place);

}  // namespace soft
