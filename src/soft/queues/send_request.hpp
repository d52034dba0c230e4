// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/send_request: one request of a send queue.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "softrdma.h"

namespace soft {

struct SendRequest {
    // Sent: the peer has to acknowledge it. Persisting: this process makes the peer's memory durable.
    enum class State : std::uint8_t { Queued, Built, Awaiting, Sent, Persisting, Done };
    State state = State::Queued;
    std::uint8_t flags = 0;     // IBV_SEND_
    bool needs_answer = false;  // is_answered() of the opcode
    std::uint8_t sges = 0;
    std::uint8_t opcode = 0;
    ibv_wc_status status = IBV_WC_SUCCESS;
    std::uint32_t length = 0;
    std::uint32_t rkey = 0;
    std::uint32_t received = 0;     // bytes of a read's response
    std::uint32_t batch_bytes = 0;  // of the batch, up to the end of the request
    std::uint32_t queue = 0;        // of the peer's, an XRC queue pair's number of a shared one; or 0
    std::uint32_t number = 0;       // of those that the peer counts as it does: wire::Acknowledgement
    // Is the level of a flush, the identifier of an atomic operation, or the value of imm_data (or of the key
    // to invalidate) as it is on the wire.
    std::uint32_t immediate = 0;
    std::uint64_t wr_id = 0;
    std::uint64_t remote_address = 0;
    std::uint64_t compare_add = 0;  // this and the next members are of an atomic operation
    std::uint64_t swap = 0;
    std::byte *kept = nullptr;  // the copy of inline data
    ibv_sge *list = nullptr;

    [[nodiscard]] bool is(ibv_send_flags flag) const { return (flags & flag) != 0; }
};

[[nodiscard]] constexpr bool is_atomic(int opcode) {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
// Returns whether an operation is done only when the peer has answered it.
[[nodiscard]] constexpr bool is_answered(int opcode) {
    return opcode == IBV_WR_RDMA_READ || is_atomic(opcode) || opcode == SOFTRDMA_WR_FLUSH;
}
// Returns whether a request only changes a memory window of this side, which was done when it was posted.
[[nodiscard]] constexpr bool changes_window(int opcode) {
    return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}
[[nodiscard]] constexpr bool is_message(int opcode) {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}
[[nodiscard]] constexpr bool has_immediate(int opcode) {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
// Returns whether a request takes a receive of the peer.
[[nodiscard]] constexpr bool takes_receive(int opcode) {
    return is_message(opcode) || has_immediate(opcode);
}

}  // namespace soft
