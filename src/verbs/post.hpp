// SPDX-License-Identifier: BSD-3-Clause
// verbs/post: makes work requests and posts them. These are inlines, which post by the operations in the
// device's context. A post returns 0, or a value for post_error(). Only the members of a request that
// its opcode uses are set.
#pragma once

#include <infiniband/verbs.h>
#include <softrdma.h>

#include <cerrno>
#include <cstdint>

namespace verbs {

// Returns the errno value of a post that failed. Some drivers do not return it correctly: siw's makes it
// negative, others return -1 and set errno.
inline int post_error(int returned) {
    return returned > 0 ? returned : (returned == -1 ? errno : -returned);
}

// It names a place in a remote region.
struct Remote {
    std::uint64_t address;
    std::uint32_t rkey;
};

// These make a request by its opcode. `local` is one element, which stays until the request is posted, or
// nullptr for an operation without bytes.
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

// Makes a read or write.
inline ibv_send_wr request_of(ibv_wr_opcode opcode, ibv_sge *local, Remote remote, unsigned send_flags,
                              std::uint64_t wr_id) {
    ibv_send_wr request = request_of(opcode, local, send_flags, wr_id);
    request.wr.rdma.remote_addr = remote.address;
    request.wr.rdma.rkey = remote.rkey;
    return request;
}

// Makes an atomic write of the 8 bytes at the element's address, which may change after the post. It is
// posted like this only to the soft device; a kernel device has the operation in ibv_qp_ex
// (verbs/extended.hpp).
inline ibv_send_wr atomic_write_request(ibv_sge *local, Remote remote, unsigned send_flags,
                                        std::uint64_t wr_id) {
    return request_of(IBV_WR_ATOMIC_WRITE, local, remote, send_flags | IBV_SEND_INLINE, wr_id);
}

enum class Flush : std::uint32_t {
    Visibility = SOFTRDMA_FLUSH_GLOBAL,
    Persistent = SOFTRDMA_FLUSH_PERSISTENT
};

// Makes a flush of extent->length bytes; only this member of the element counts. It is posted as an
// atomic_write_request.
inline ibv_send_wr flush_request(ibv_sge *extent, Remote remote, Flush flush, unsigned send_flags,
                                 std::uint64_t wr_id) {
    ibv_send_wr request =
        request_of(static_cast<ibv_wr_opcode>(SOFTRDMA_WR_FLUSH), extent, remote, send_flags, wr_id);
    request.imm_data = static_cast<std::uint32_t>(flush);
    return request;
}

inline int post(ibv_qp *qp, ibv_send_wr &request) {
    ibv_send_wr *bad = nullptr;
    return ibv_post_send(qp, &request, &bad);
}
inline int post(ibv_qp *qp, ibv_send_wr &&request) {
    return post(qp, request);
}

inline int post_receive(ibv_qp *qp, ibv_sge *local, std::uint64_t wr_id) {
    ibv_recv_wr request{
        .wr_id = wr_id, .next = nullptr, .sg_list = local, .num_sge = local != nullptr ? 1 : 0};
    ibv_recv_wr *bad = nullptr;
    return ibv_post_recv(qp, &request, &bad);
}

inline int post_receive(ibv_srq *srq, ibv_sge *local, std::uint64_t wr_id) {
    ibv_recv_wr request{
        .wr_id = wr_id, .next = nullptr, .sg_list = local, .num_sge = local != nullptr ? 1 : 0};
    ibv_recv_wr *bad = nullptr;
    return ibv_post_srq_recv(srq, &request, &bad);
}

}  // namespace verbs
