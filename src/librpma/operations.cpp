// SPDX-License-Identifier: BSD-3-Clause
// librpma/operations: reads, writes, sends and receives, each one work request.
#include <cerrno>

#include "librpma/conn_req.hpp"
#include "librpma/request.hpp"
#include "librpma/srq.hpp"

namespace librpma {

int refused_post(int returned) {
    const int number = verbs::post_error(returned);
    BASE_LOG(Error, "the operation cannot be posted: %s%s", error_text(number),
             number == ENOMEM ? " (the queue is full: see rpma_conn_cfg_set_sq_size, _set_rq_size)" : "");
    return RPMA_E_PROVIDER;
}

[[gnu::noinline]] int prepare_nothing(Request &request, ibv_wr_opcode opcode, int flags,
                                      const void *op_context) {
    const unsigned solicited = opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? solicited_flag(flags) : 0;
    request.wr = verbs::request_of(opcode, nullptr, {.address = 0, .rkey = 0}, send_flags(flags) | solicited,
                                   wr_id(op_context));
    return 0;
}

namespace {

template <typename Queue>
int receive(Queue *queue, const rpma_mr_local *dst, std::size_t offset, std::size_t len,
            const void *op_context) {
    ibv_sge part = dst != nullptr ? dst->part(offset, len) : ibv_sge{};
    return posted(verbs::post_receive(queue, dst != nullptr ? &part : nullptr, wr_id(op_context)));
}

}  // namespace

}  // namespace librpma

int rpma_read(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t dst_offset,
              const struct rpma_mr_remote *src, size_t src_offset, size_t len, int flags,
              const void *op_context) {
    librpma::Request request;
    const int result = librpma::prepare_transfer(request, IBV_WR_RDMA_READ, conn, dst, dst_offset, src,
                                                 src_offset, len, flags, op_context);
    return result != 0 ? result : librpma::post(*conn, request);
}

int rpma_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
               const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
               const void *op_context) {
    librpma::Request request;
    const int result = librpma::prepare_transfer(request, IBV_WR_RDMA_WRITE, conn, src, src_offset, dst,
                                                 dst_offset, len, flags, op_context);
    return result != 0 ? result : librpma::post(*conn, request);
}

int rpma_write_with_imm(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                        const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
                        uint32_t imm, const void *op_context) {
    librpma::Request request;
    const int result = librpma::prepare_transfer(request, IBV_WR_RDMA_WRITE_WITH_IMM, conn, src, src_offset,
                                                 dst, dst_offset, len, flags, op_context);
    librpma::set_immediate(request, imm);
    return result != 0 ? result : librpma::post(*conn, request);
}

int rpma_atomic_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                      const char src[8], int flags, const void *op_context) {
    librpma::Request request;
    const int result = librpma::prepare_atomic_write(request, conn, dst, dst_offset, src, flags, op_context);
    return result != 0 ? result : librpma::post_either(*conn, request);
}

int rpma_flush(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset, size_t len,
               enum rpma_flush_type type, int flags, const void *op_context) {
    librpma::Request request;
    const int result = librpma::prepare_flush(request, conn, dst, dst_offset, len, type, flags, op_context);
    return result != 0 ? result : librpma::post_either(*conn, request);
}

int rpma_send(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len, int flags,
              const void *op_context) {
    librpma::Request request;
    const int result =
        librpma::prepare_message(request, IBV_WR_SEND, conn, src, offset, len, flags, op_context);
    return result != 0 ? result : librpma::post(*conn, request);
}

int rpma_send_with_imm(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len,
                       int flags, uint32_t imm, const void *op_context) {
    librpma::Request request;
    const int result =
        librpma::prepare_message(request, IBV_WR_SEND_WITH_IMM, conn, src, offset, len, flags, op_context);
    librpma::set_immediate(request, imm);
    return result != 0 ? result : librpma::post(*conn, request);
}

int rpma_recv(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t offset, size_t len,
              const void *op_context) {
    if (conn == nullptr || !librpma::is_message(dst, offset, len) ||
        (conn->checks_bounds() && dst != nullptr && !librpma::is_within(offset, len, dst->size()))) {
        return RPMA_E_INVAL;
    }
    return librpma::receive(conn->qp(), dst, offset, len, op_context);
}

int rpma_srq_recv(struct rpma_srq *srq, struct rpma_mr_local *dst, size_t offset, size_t len,
                  const void *op_context) {
    if (srq == nullptr || !librpma::is_message(dst, offset, len)) {
        return RPMA_E_INVAL;
    }
    return librpma::receive(srq->get(), dst, offset, len, op_context);
}

int rpma_conn_req_recv(struct rpma_conn_req *req, struct rpma_mr_local *dst, size_t offset, size_t len,
                       const void *op_context) {
    if (req == nullptr || dst == nullptr || len > UINT32_MAX || !req->ready() ||
        (req->checks_bounds() && !librpma::is_within(offset, len, dst->size()))) {
        return RPMA_E_INVAL;
    }
    return librpma::receive(req->qp(), dst, offset, len, op_context);
}
