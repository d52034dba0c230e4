// SPDX-License-Identifier: BSD-3-Clause
// verbs/post: one work request, posted. Inlines through the context's own operations: no table is on this
// path. Each returns 0 or an errno value. Only the members of a work request that its opcode uses are set.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <softrdma.h>

#include <bit>
#include <cstdint>

namespace verbs {

// A place in a remote region.
struct Remote {
    std::uint64_t address;
    std::uint32_t rkey;
};

// local is one element, or nullptr for an operation on nothing.
inline void prepare(ibv_send_wr &request, ibv_sge *local, ibv_wr_opcode opcode, unsigned send_flags,
                    std::uint64_t wr_id) {
    request.wr_id = wr_id;
    request.next = nullptr;
    request.sg_list = local;
    request.num_sge = local != nullptr ? 1 : 0;
    request.opcode = opcode;
    request.send_flags = send_flags;
}

inline void aim(ibv_send_wr &request, Remote remote) {
    request.wr.rdma.remote_addr = remote.address;
    request.wr.rdma.rkey = remote.rkey;
}

inline int post(ibv_qp *qp, ibv_send_wr &request) {
    ibv_send_wr *refused = nullptr;
    return ibv_post_send(qp, &request, &refused);
}

inline int post_write(ibv_qp *qp, ibv_sge *local, Remote remote, unsigned send_flags, std::uint64_t wr_id) {
    ibv_send_wr request;
    prepare(request, local, IBV_WR_RDMA_WRITE, send_flags, wr_id);
    aim(request, remote);
    return post(qp, request);
}

// imm in host order.
inline int post_write_with_imm(ibv_qp *qp, ibv_sge *local, Remote remote, unsigned send_flags,
                               std::uint32_t imm, std::uint64_t wr_id) {
    ibv_send_wr request;
    prepare(request, local, IBV_WR_RDMA_WRITE_WITH_IMM, send_flags, wr_id);
    request.imm_data = htonl(imm);
    aim(request, remote);
    return post(qp, request);
}

inline int post_read(ibv_qp *qp, ibv_sge *local, Remote remote, unsigned send_flags, std::uint64_t wr_id) {
    ibv_send_wr request;
    prepare(request, local, IBV_WR_RDMA_READ, send_flags, wr_id);
    aim(request, remote);
    return post(qp, request);
}

inline int post_send(ibv_qp *qp, ibv_sge *local, unsigned send_flags, std::uint64_t wr_id) {
    ibv_send_wr request;
    prepare(request, local, IBV_WR_SEND, send_flags, wr_id);
    return post(qp, request);
}

// imm in host order.
inline int post_send_with_imm(ibv_qp *qp, ibv_sge *local, unsigned send_flags, std::uint32_t imm,
                              std::uint64_t wr_id) {
    ibv_send_wr request;
    prepare(request, local, IBV_WR_SEND_WITH_IMM, send_flags, wr_id);
    request.imm_data = htonl(imm);
    return post(qp, request);
}

// 8 bytes from source, which is free again on return, stored at once; needs native_atomic_write.
inline int post_atomic_write(ibv_qp *qp, const char *source, Remote remote, unsigned send_flags,
                             std::uint64_t wr_id) {
    ibv_sge local{.addr = std::bit_cast<std::uintptr_t>(source), .length = 8, .lkey = 0};
    ibv_send_wr request;
    prepare(request, &local, IBV_WR_ATOMIC_WRITE, send_flags | IBV_SEND_INLINE, wr_id);
    aim(request, remote);
    return post(qp, request);
}

// The same for a peer without it: a small write that begins when the reads before it have ended.
inline int post_inline_fenced_write(ibv_qp *qp, const char *source, Remote remote, unsigned send_flags,
                                    std::uint64_t wr_id) {
    ibv_sge local{.addr = std::bit_cast<std::uintptr_t>(source), .length = 8, .lkey = 0};
    return post_write(qp, &local, remote, send_flags | IBV_SEND_INLINE | IBV_SEND_FENCE, wr_id);
}

enum class Flush : std::uint32_t {
    Visibility = SOFTRDMA_FLUSH_GLOBAL,
    Persistent = SOFTRDMA_FLUSH_PERSISTENT
};

// Needs native_flush.
inline int post_flush(ibv_qp *qp, Remote remote, std::uint32_t length, Flush flush, unsigned send_flags,
                      std::uint64_t wr_id) {
    ibv_sge extent{.addr = 0, .length = length, .lkey = 0};
    ibv_send_wr request;
    prepare(request, &extent, static_cast<ibv_wr_opcode>(SOFTRDMA_WR_FLUSH), send_flags, wr_id);
    request.imm_data = static_cast<std::uint32_t>(flush);
    aim(request, remote);
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
