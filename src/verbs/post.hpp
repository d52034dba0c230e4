// SPDX-License-Identifier: BSD-3-Clause
// verbs/post: work requests, and posting them. Inlines through the context's own operations: no table is on
// this path. A post returns 0, or something for post_error(). Only the members of a request that its opcode
// uses are set.
#pragma once

#include <infiniband/verbs.h>
#include <softrdma.h>

#include <cerrno>
#include <cstdint>

namespace verbs {

// The errno value of a post that failed. Not every driver returns it as it should: siw's makes it negative,
// others return -1 and set errno.
inline int post_error(int returned) {
    return returned > 0 ? returned : (returned == -1 ? errno : -returned);
}

// A place in a remote region.
struct Remote {
    std::uint64_t address;
    std::uint32_t rkey;
};

// Requests by opcode; local is one element, which stays until the request is posted, or nullptr for an
// operation on nothing.
inline ibv_send_wr request_of(ibv_wr_opcode opcode, ibv_sge *local, unsigned send_flags,
                              std::uint64_t wr_id) {
    ibv_send_wr request;
    request.wr_id = wr_id;
    request.next = nullptr;
    request.sg_list = local;
    request.num_sge = local != nullptr ? 1 : 0;
    request.opcode = opcode;
    request.send_flags = send_flags;
    return request;
}

// A read or write.
inline ibv_send_wr request_of(ibv_wr_opcode opcode, ibv_sge *local, Remote remote, unsigned send_flags,
                              std::uint64_t wr_id) {
    ibv_send_wr request = request_of(opcode, local, send_flags, wr_id);
    request.wr.rdma.remote_addr = remote.address;
    request.wr.rdma.rkey = remote.rkey;
    return request;
}

// 8 bytes from the element's address, which is free again after the post, stored at once. Posted like this to
// the soft device only; a kernel device has it in ibv_qp_ex (verbs/extended.hpp).
inline ibv_send_wr atomic_write_request(ibv_sge *local, Remote remote, unsigned send_flags,
                                        std::uint64_t wr_id) {
    return request_of(IBV_WR_ATOMIC_WRITE, local, remote, send_flags | IBV_SEND_INLINE, wr_id);
}

enum class Flush : std::uint32_t {
    Visibility = SOFTRDMA_FLUSH_GLOBAL,
    Persistent = SOFTRDMA_FLUSH_PERSISTENT
};

// extent->length bytes; of the element only that counts. As atomic_write_request.
inline ibv_send_wr flush_request(ibv_sge *extent, Remote remote, Flush flush, unsigned send_flags,
                                 std::uint64_t wr_id) {
    ibv_send_wr request =
        request_of(static_cast<ibv_wr_opcode>(SOFTRDMA_WR_FLUSH), extent, remote, send_flags, wr_id);
    request.imm_data = static_cast<std::uint32_t>(flush);
    return request;
}

inline int post(ibv_qp *qp, ibv_send_wr &request) {
    ibv_send_wr *refused = nullptr;
    return ibv_post_send(qp, &request, &refused);
}
inline int post(ibv_qp *qp, ibv_send_wr &&request) {
    return post(qp, request);
}

inline int post_receive(ibv_qp *qp, ibv_sge *local, std::uint64_t wr_id) {
    ibv_recv_wr request{
        .wr_id = wr_id, .next = nullptr, .sg_list = local, .num_sge = local != nullptr ? 1 : 0};
    ibv_recv_wr *refused = nullptr;
    return ibv_post_recv(qp, &request, &refused);
}

inline int post_receive(ibv_srq *srq, ibv_sge *local, std::uint64_t wr_id) {
    ibv_recv_wr request{
        .wr_id = wr_id, .next = nullptr, .sg_list = local, .num_sge = local != nullptr ? 1 : 0};
    ibv_recv_wr *refused = nullptr;
    return ibv_post_srq_recv(srq, &request, &refused);
}

}  // namespace verbs
