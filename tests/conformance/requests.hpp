// SPDX-License-Identifier: BSD-3-Clause
// conformance/requests: tests make work requests in a few words, post them and wait for their completions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ends.hpp"

namespace conformance {

// A Request describes one send request.
struct Request {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    std::uint64_t wr_id = 1;
    std::vector<ibv_sge> sges{};
    unsigned flags = IBV_SEND_SIGNALED;
    std::uint64_t remote_address = 0;
    std::uint32_t rkey = 0;
    std::uint32_t immediate = 0;    // or the rkey to invalidate
    std::uint64_t compare_add = 0;  // of an atomic operation
    std::uint64_t swap = 0;
    std::uint32_t shared_queue = 0;  // of the peer, on XRC
};

inline constexpr auto flush_opcode = static_cast<ibv_wr_opcode>(SOFTRDMA_WR_FLUSH);
inline constexpr auto flush_completed = static_cast<ibv_wc_opcode>(SOFTRDMA_WC_FLUSH);

// Posts the requests as one chain, and returns what verbs returns. `refused` gets the index of the request
// that bad_wr points to.
int post(const End &end, const std::vector<Request> &requests, std::size_t *refused = nullptr);
int post_receive(const End &end, std::uint64_t wr_id, const std::vector<ibv_sge> &sges);
// Posts to the shared receive queue of the end.
int post_shared_receive(const End &end, std::uint64_t wr_id, const std::vector<ibv_sge> &sges);

ibv_sge sge(const End &end, std::size_t offset, std::size_t length);
// With these requests `from` writes, reads or flushes the memory of `to`, at the same offset in both.
Request write_request(const End &from, const End &to, std::size_t offset, std::size_t length,
                      std::uint64_t wr_id = 1);
Request read_request(const End &from, const End &to, std::size_t offset, std::size_t length,
                     std::uint64_t wr_id = 1);
Request flush_request(const End &to, std::size_t offset, std::size_t length,
                      std::uint32_t level = SOFTRDMA_FLUSH_GLOBAL, std::uint64_t wr_id = 1);
Request send_request(const End &from, std::size_t offset, std::size_t length, std::uint64_t wr_id = 1);
// Returns an atomic write. The device must have native_atomic_write.
Request atomic_write_request(const End &from, const End &to, std::size_t offset, std::uint64_t wr_id = 1);
// Returns a request that makes earlier writes visible: a flush, or a read where the device has no flush.
Request settling_request(const End &from, const End &to, std::uint64_t wr_id);
// Returns the write or the send with immediate data, which is in network byte order.
Request with_immediate(Request request, std::uint32_t immediate);
Request unsignaled(Request request);
Request fenced(Request request);
Request inlined(Request request);
Request solicited(Request request);

// Polls for the next completion, and asserts that it comes.
ibv_wc next_completion(ibv_cq *cq);
// Does the same for any thread. Returns false when no completion came.
bool poll_for(ibv_cq *cq, ibv_wc &completion);
void expect_completion(ibv_cq *cq, std::uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS);
void expect_no_completion(ibv_cq *cq);
// Asks for an event at the next completion.
void arm(ibv_cq *cq, bool solicited_only = false);
// Waits for the next event on the channel of the end, and does not acknowledge it.
ibv_cq *take_cq_event(const End &end);
// Waits for the next event, asserts that it is of this queue, and acknowledges it.
void expect_cq_event(const End &end, ibv_cq *cq);
// Waits until all earlier writes of `from` to `to` are placed. No other completion may be on its way.
void settle(const End &from, const End &to);

// fill() writes a pattern that depends on the seed, and holds() recognises it.
void fill(End &end, std::size_t offset, std::size_t length, unsigned seed);
bool holds(const End &end, std::size_t offset, std::size_t length, unsigned seed);
bool same(const End &a, const End &b, std::size_t offset, std::size_t length);

}  // namespace conformance
