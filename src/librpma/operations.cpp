// SPDX-License-Identifier: BSD-3-Clause
// librpma/operations: reads, writes, sends and receives, each one work request.
#include <cerrno>

#include "librpma/conn_req.hpp"
#include "librpma/request.hpp"
#include "librpma/srq.hpp"

namespace librpma {

int log_refused_post(int returned) {
    const int number = verbs::post_error(returned);
    BASE_LOG(Error, "the operation cannot be posted: %s%s", error_text(number),
             number == ENOMEM   ? " (the queue is full: see rpma_conn_cfg_set_sq_size, _set_rq_size)"
             : number == EINVAL ? " (is the connection established? see rpma_conn_next_event)"
                                : "");
    return RPMA_E_PROVIDER;
}

int invalid_operation(const Arguments &its) {
    if (its.conn == nullptr) {
        return invalid_call(its.function, "conn is NULL");
    }
    if (its.len > UINT32_MAX) {
        return invalid_call(its.function, "%zu bytes: one operation has at most %u", its.len, UINT32_MAX);
    }
    const bool names_none = its.local == nullptr && its.remote == nullptr;
    const bool is_nothing = names_none && (its.local_offset | its.remote_offset | its.len) == 0;
    if (its.needs_both && (its.local == nullptr || its.remote == nullptr) && !is_nothing) {
        return invalid_call(its.function, "src or dst is NULL: only an empty operation at offset 0 has none");
    }
    if (names_none && !is_nothing) {
        return invalid_call(its.function, "src is NULL: only an empty message at offset 0 has none");
    }
    const bool bounds = its.conn->checks_bounds();
    if (bounds && its.local != nullptr && !is_within(its.local_offset, its.len, its.local->size())) {
        return invalid_call(its.function, "%zu bytes from %zu on: the local region has %zu", its.len,
                            its.local_offset, its.local->size());
    }
    if (bounds && its.remote != nullptr && !is_within(its.remote_offset, its.len, its.remote->size())) {
        return invalid_call(its.function, "%zu bytes from %zu on: the remote region has %zu", its.len,
                            its.remote_offset, static_cast<std::size_t>(its.remote->size()));
    }
    return invalid_call(its.function, "flags is 0: an RPMA_F_COMPLETION_ flag is needed");
}

namespace {

const char *function_of(ibv_wr_opcode opcode) {
    switch (opcode) {
        case IBV_WR_RDMA_READ:
            return "rpma_read";
        case IBV_WR_RDMA_WRITE:
            return "rpma_write";
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return "rpma_write_with_imm";
        case IBV_WR_SEND:
            return "rpma_send";
        default:
            return "rpma_send_with_imm";
    }
}

}  // namespace

int invalid_transfer(ibv_wr_opcode opcode, const rpma_conn *conn, const rpma_mr_local *local,
                     std::size_t local_offset, const rpma_mr_remote *remote, std::size_t remote_offset,
                     std::size_t len) {
    return invalid_operation({.function = function_of(opcode),
                              .conn = conn,
                              .needs_both = opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM,
                              .len = len,
                              .local = local,
                              .local_offset = local_offset,
                              .remote = remote,
                              .remote_offset = remote_offset});
}

int invalid_atomic_write(const rpma_conn *conn, const rpma_mr_remote *remote, std::size_t offset,
                         const char *source) {
    constexpr const char *function = "rpma_atomic_write";
    if (offset % RPMA_ATOMIC_WRITE_ALIGNMENT != 0) {
        return invalid_call(function, "dst_offset %zu is no multiple of %d", offset,
                            RPMA_ATOMIC_WRITE_ALIGNMENT);
    }
    if (remote == nullptr || source == nullptr) {
        return invalid_call(function, "dst or src is NULL");
    }
    return invalid_operation({.function = function,
                              .conn = conn,
                              .needs_both = false,
                              .len = 8,
                              .local = nullptr,
                              .local_offset = 0,
                              .remote = remote,
                              .remote_offset = offset});
}

[[gnu::noinline]] void prepare_nothing(Request &request, ibv_wr_opcode opcode, int flags,
                                       const void *op_context) {
    const unsigned solicited = opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? solicited_flag(flags) : 0;
    request.wr = verbs::request_of(opcode, nullptr, {.address = 0, .rkey = 0}, send_flags(flags) | solicited,
                                   wr_id(op_context));
}

namespace {

// The arguments are in the places where the public function has them, so that the call moves none.
[[gnu::cold, gnu::noinline]] int invalid_read(const rpma_conn *conn, const rpma_mr_local *dst,
                                              std::size_t dst_offset, const rpma_mr_remote *src,
                                              std::size_t src_offset, std::size_t len) {
    return invalid_transfer(IBV_WR_RDMA_READ, conn, dst, dst_offset, src, src_offset, len);
}
[[gnu::cold, gnu::noinline]] int invalid_write(const rpma_conn *conn, const rpma_mr_remote *dst,
                                               std::size_t dst_offset, const rpma_mr_local *src,
                                               std::size_t src_offset, std::size_t len) {
    return invalid_transfer(IBV_WR_RDMA_WRITE, conn, src, src_offset, dst, dst_offset, len);
}

[[gnu::cold, gnu::noinline]] int invalid_receive(const char *function, const void *queue,
                                                 const rpma_mr_local *dst, std::size_t offset,
                                                 std::size_t len) {
    if (queue == nullptr) {
        return invalid_call(function, "the connection, request or queue is NULL or not ready");
    }
    if (len > UINT32_MAX) {
        return invalid_call(function, "%zu bytes: one receive has at most %u", len, UINT32_MAX);
    }
    if (dst == nullptr) {
        return invalid_call(function, "dst is NULL: only an empty receive at offset 0 has none");
    }
    return invalid_call(function, "%zu bytes from %zu on: the region has %zu", len, offset, dst->size());
}

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
    if (!librpma::prepare_transfer(request, IBV_WR_RDMA_READ, conn, dst, dst_offset, src, src_offset, len,
                                   flags, op_context)) {
        return librpma::invalid_read(conn, dst, dst_offset, src, src_offset, len);
    }
    return librpma::post(*conn, request);
}

int rpma_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
               const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
               const void *op_context) {
    librpma::Request request;
    if (!librpma::prepare_transfer(request, IBV_WR_RDMA_WRITE, conn, src, src_offset, dst, dst_offset, len,
                                   flags, op_context)) {
        return librpma::invalid_write(conn, dst, dst_offset, src, src_offset, len);
    }
    return librpma::post(*conn, request);
}

int rpma_write_with_imm(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                        const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
                        uint32_t imm, const void *op_context) {
    librpma::Request request;
    if (!librpma::prepare_transfer(request, IBV_WR_RDMA_WRITE_WITH_IMM, conn, src, src_offset, dst,
                                   dst_offset, len, flags, op_context)) {
        return librpma::invalid_transfer(IBV_WR_RDMA_WRITE_WITH_IMM, conn, src, src_offset, dst, dst_offset,
                                         len);
    }
    librpma::set_immediate(request, imm);
    return librpma::post(*conn, request);
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
    if (!librpma::prepare_message(request, IBV_WR_SEND, conn, src, offset, len, flags, op_context)) {
        return librpma::invalid_transfer(IBV_WR_SEND, conn, src, offset, nullptr, 0, len);
    }
    return librpma::post(*conn, request);
}

int rpma_send_with_imm(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len,
                       int flags, uint32_t imm, const void *op_context) {
    librpma::Request request;
    if (!librpma::prepare_message(request, IBV_WR_SEND_WITH_IMM, conn, src, offset, len, flags, op_context)) {
        return librpma::invalid_transfer(IBV_WR_SEND_WITH_IMM, conn, src, offset, nullptr, 0, len);
    }
    librpma::set_immediate(request, imm);
    return librpma::post(*conn, request);
}

int rpma_recv(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t offset, size_t len,
              const void *op_context) {
    if (conn == nullptr || !librpma::is_message(dst, offset, len) ||
        (conn->checks_bounds() && dst != nullptr && !librpma::is_within(offset, len, dst->size()))) {
        return librpma::invalid_receive("rpma_recv", conn, dst, offset, len);
    }
    return librpma::receive(conn->qp(), dst, offset, len, op_context);
}

int rpma_srq_recv(struct rpma_srq *srq, struct rpma_mr_local *dst, size_t offset, size_t len,
                  const void *op_context) {
    if (srq == nullptr || !librpma::is_message(dst, offset, len)) {
        return librpma::invalid_receive("rpma_srq_recv", srq, dst, offset, len);
    }
    return librpma::receive(srq->get(), dst, offset, len, op_context);
}

int rpma_conn_req_recv(struct rpma_conn_req *req, struct rpma_mr_local *dst, size_t offset, size_t len,
                       const void *op_context) {
    if (req == nullptr || dst == nullptr || len > UINT32_MAX || !req->ready() ||
        (req->checks_bounds() && !librpma::is_within(offset, len, dst->size()))) {
        return librpma::invalid_receive("rpma_conn_req_recv", req != nullptr && req->ready() ? req : nullptr,
                                        dst, offset, len);
    }
    return librpma::receive(req->qp(), dst, offset, len, op_context);
}
