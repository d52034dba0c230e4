// SPDX-License-Identifier: BSD-3-Clause
// librpma/operations: reads, writes, sends and receives, each one work request.
#include <bit>
#include <cerrno>

#include "librpma/conn.hpp"
#include "librpma/mr_local.hpp"
#include "librpma/post_flags.hpp"
#include "librpma/srq.hpp"
#include "verbs/post.hpp"

namespace librpma {

int refused_post(int number) {
    BASE_LOG(Error, "the operation cannot be posted: %s%s", error_text(number),
             number == ENOMEM ? " (the queue is full: see rpma_conn_cfg_set_sq_size, _set_rq_size)" : "");
    return RPMA_E_PROVIDER;
}

namespace {

// Both ends of a transfer, or neither end and nothing at all.
bool is_transfer(const rpma_mr_local *local, std::size_t local_offset, const rpma_mr_remote *remote,
                 std::size_t remote_offset, std::size_t len) {
    if (local != nullptr && remote != nullptr) {
        return true;
    }
    return local == nullptr && remote == nullptr && local_offset == 0 && remote_offset == 0 && len == 0;
}

// A message's place, or no place and an empty message.
bool is_message(const rpma_mr_local *local, std::size_t offset, std::size_t len) {
    return local != nullptr || (offset == 0 && len == 0);
}

// The element for a work request; where there is no region the pointer to it is null.
class Part {
public:
    Part(const rpma_mr_local *local, std::size_t offset, std::size_t len)
        : is_none_{local == nullptr}, element_{is_none_ ? ibv_sge{} : local->part(offset, len)} {}
    [[nodiscard]] ibv_sge *pointer() { return is_none_ ? nullptr : &element_; }

private:
    bool is_none_;
    ibv_sge element_;
};

verbs::Remote place(const rpma_mr_remote *remote, std::size_t offset) {
    return remote != nullptr ? remote->at(offset) : verbs::Remote{.address = 0, .rkey = 0};
}

std::uint64_t wr_id(const void *op_context) {
    return std::bit_cast<std::uintptr_t>(op_context);
}

}  // namespace

}  // namespace librpma

using librpma::Part;

int rpma_read(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t dst_offset,
              const struct rpma_mr_remote *src, size_t src_offset, size_t len, int flags,
              const void *op_context) {
    if (conn == nullptr || flags == 0 || !librpma::is_transfer(dst, dst_offset, src, src_offset, len)) {
        return RPMA_E_INVAL;
    }
    Part local{dst, dst_offset, len};
    return librpma::posted(verbs::post_read(conn->qp(), local.pointer(), librpma::place(src, src_offset),
                                            librpma::send_flags(flags), librpma::wr_id(op_context)));
}

int rpma_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
               const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
               const void *op_context) {
    if (conn == nullptr || flags == 0 || !librpma::is_transfer(src, src_offset, dst, dst_offset, len)) {
        return RPMA_E_INVAL;
    }
    Part local{src, src_offset, len};
    return librpma::posted(verbs::post_write(conn->qp(), local.pointer(), librpma::place(dst, dst_offset),
                                             librpma::send_flags(flags), librpma::wr_id(op_context)));
}

int rpma_write_with_imm(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                        const struct rpma_mr_local *src, size_t src_offset, size_t len, int flags,
                        uint32_t imm, const void *op_context) {
    if (conn == nullptr || flags == 0 || !librpma::is_transfer(src, src_offset, dst, dst_offset, len)) {
        return RPMA_E_INVAL;
    }
    Part local{src, src_offset, len};
    return librpma::posted(
        verbs::post_write_with_imm(conn->qp(), local.pointer(), librpma::place(dst, dst_offset),
                                   librpma::send_flags(flags), imm, librpma::wr_id(op_context)));
}

int rpma_atomic_write(struct rpma_conn *conn, struct rpma_mr_remote *dst, size_t dst_offset,
                      const char src[8], int flags, const void *op_context) {
    if (conn == nullptr || dst == nullptr || src == nullptr || flags == 0 ||
        dst_offset % RPMA_ATOMIC_WRITE_ALIGNMENT != 0) {
        return RPMA_E_INVAL;
    }
    // Native operations are done in order. A flush that is a read is not done before a fence says so.
    const unsigned send_flags =
        librpma::send_flags(flags) | (conn->has_native(verbs::native_flush) ? 0 : IBV_SEND_FENCE);
    const auto post = conn->has_native(verbs::native_atomic_write) ? conn->provider().post_atomic_write
                                                                   : verbs::post_inline_fenced_write;
    return librpma::posted(
        post(conn->qp(), src, dst->at(dst_offset), send_flags, librpma::wr_id(op_context)));
}

int rpma_send(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len, int flags,
              const void *op_context) {
    if (conn == nullptr || flags == 0 || !librpma::is_message(src, offset, len)) {
        return RPMA_E_INVAL;
    }
    Part local{src, offset, len};
    return librpma::posted(verbs::post_send(conn->qp(), local.pointer(), librpma::send_flags(flags),
                                            librpma::wr_id(op_context)));
}

int rpma_send_with_imm(struct rpma_conn *conn, const struct rpma_mr_local *src, size_t offset, size_t len,
                       int flags, uint32_t imm, const void *op_context) {
    if (conn == nullptr || flags == 0 || !librpma::is_message(src, offset, len)) {
        return RPMA_E_INVAL;
    }
    Part local{src, offset, len};
    return librpma::posted(verbs::post_send_with_imm(conn->qp(), local.pointer(), librpma::send_flags(flags),
                                                     imm, librpma::wr_id(op_context)));
}

int rpma_recv(struct rpma_conn *conn, struct rpma_mr_local *dst, size_t offset, size_t len,
              const void *op_context) {
    if (conn == nullptr || !librpma::is_message(dst, offset, len)) {
        return RPMA_E_INVAL;
    }
    Part local{dst, offset, len};
    return librpma::posted(verbs::post_receive(conn->qp(), local.pointer(), librpma::wr_id(op_context)));
}

int rpma_srq_recv(struct rpma_srq *srq, struct rpma_mr_local *dst, size_t offset, size_t len,
                  const void *op_context) {
    if (srq == nullptr || !librpma::is_message(dst, offset, len)) {
        return RPMA_E_INVAL;
    }
    Part local{dst, offset, len};
    return librpma::posted(verbs::post_receive(srq->get(), local.pointer(), librpma::wr_id(op_context)));
}
