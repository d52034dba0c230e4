// SPDX-License-Identifier: BSD-3-Clause
// librpma/batch: posts several operations to the device together.
#include <array>
#include <cerrno>
#include <span>

#include "librpma/conn_req.hpp"
#include "librpma/request.hpp"

namespace librpma {

namespace {

// Returns whether an operation has a source that is given as bytes, or a place that is given as address and
// key.
bool has_bytes(const rpma_op &op, ibv_wr_opcode opcode) {
    return op.bytes != nullptr && opcode != IBV_WR_RDMA_READ;
}
bool has_address(const rpma_op &op) {
    return op.remote_addr != 0 || op.remote_key != 0;
}

// Prepares the near end: bytes that the post takes, a part of a region, or nothing. Returns false when it is
// not given in one of these ways.
[[gnu::always_inline]] inline bool prepare_near_end(Request &request, ibv_wr_opcode opcode,
                                                    const rpma_conn &conn, const rpma_op &op) {
    unsigned wr_flags = send_flags(op.flags);
    if (opcode != IBV_WR_RDMA_WRITE && opcode != IBV_WR_RDMA_READ) {
        wr_flags |= solicited_flag(op.flags);
    }
    ibv_sge *part = &request.part;
    if (has_bytes(op, opcode)) {
        if (op.flags == 0 || op.local != nullptr || op.len > conn.most_source_bytes()) {
            return false;
        }
        wr_flags |= IBV_SEND_INLINE;
        *part = {.addr = std::bit_cast<std::uintptr_t>(op.bytes),
                 .length = static_cast<std::uint32_t>(op.len),
                 .lkey = 0};
    } else if (op.local != nullptr) {
        if (op.flags == 0 || op.len > UINT32_MAX ||
            (conn.checks_bounds() && !is_within(op.local_offset, op.len, op.local->size()))) {
            return false;
        }
        wr_flags |= opcode != IBV_WR_RDMA_READ ? inline_flag(conn, op.len) : 0;
        *part = op.local->part(op.local_offset, op.len);
    } else if (op.flags == 0 || op.len != 0) {
        return false;
    } else {
        part = nullptr;
    }
    request.wr = verbs::request_of(opcode, part, wr_flags, wr_id(op.op_context));
    return true;
}

[[gnu::cold, gnu::noinline]] int invalid_near_end(const rpma_op &op) {
    return invalid_call("rpma_post",
                        "flags is 0, the near end is not given in one way, or %zu bytes are too many or "
                        "outside of the region",
                        op.len);
}
[[gnu::cold, gnu::noinline]] int invalid_far_end(const rpma_op &op) {
    return invalid_call(
        "rpma_post",
        "the far end is given as region and address, or %zu bytes from %zu on are outside of the region",
        op.len, op.remote_offset);
}

// Prepares the far end of a transfer with an end that no region names. Returns false as prepare_near_end
// does.
[[gnu::always_inline]] inline bool prepare_far_end(Request &request, const rpma_conn &conn,
                                                   const rpma_op &op) {
    verbs::Remote place{.address = op.remote_addr, .rkey = op.remote_key};
    if (op.remote != nullptr) {
        if (has_address(op) ||
            (conn.checks_bounds() && !is_within(op.remote_offset, op.len, op.remote->size()))) {
            return false;
        }
        place = op.remote->at(op.remote_offset);
    } else if (!has_address(op)) {
        return false;
    }
    request.wr.wr.rdma.remote_addr = place.address;
    request.wr.wr.rdma.rkey = place.rkey;
    return true;
}

// Prepares a transfer with an end that no region names.
[[gnu::always_inline]] inline int prepare_without_region(Request &request, ibv_wr_opcode opcode,
                                                         const rpma_conn &conn, const rpma_op &op) {
    if (!prepare_near_end(request, opcode, conn, op)) {
        return invalid_near_end(op);
    }
    return prepare_far_end(request, conn, op) ? 0 : invalid_far_end(op);
}

[[gnu::always_inline]] inline int prepare_op(Request &request, ibv_wr_opcode opcode, const rpma_conn &conn,
                                             const rpma_op &op) {
    const bool is_message = opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
    if (is_message && has_bytes(op, opcode)) {
        return prepare_near_end(request, opcode, conn, op) ? 0 : invalid_near_end(op);
    }
    if (!is_message && (has_bytes(op, opcode) || has_address(op))) {
        return prepare_without_region(request, opcode, conn, op);
    }
    const bool is_valid = is_message
                              ? prepare_message(request, opcode, &conn, op.local, op.local_offset, op.len,
                                                op.flags, op.op_context)
                              : prepare_transfer(request, opcode, &conn, op.local, op.local_offset, op.remote,
                                                 op.remote_offset, op.len, op.flags, op.op_context);
    return is_valid
               ? 0
               : invalid_transfer(opcode, &conn, op.local, op.local_offset, is_message ? nullptr : op.remote,
                                  is_message ? 0 : op.remote_offset, op.len);
}

[[gnu::cold, gnu::noinline]] int invalid_op(const rpma_op &op) {
    return op.type < RPMA_OP_READ || op.type > RPMA_OP_SEND_WITH_IMM
               ? invalid_call("rpma_post", "%d is no type of operation", op.type)
               : invalid_call("rpma_post", "reserved members are not 0");
}

[[gnu::always_inline]] inline int prepare(Request &request, const rpma_conn &conn, const rpma_op &op) {
    int result = 0;
    request.is_native = false;
    if ((op.reserved[0] | op.reserved[1]) != 0) {
        return invalid_op(op);
    }
    switch (op.type) {
        case RPMA_OP_READ:
            return prepare_op(request, IBV_WR_RDMA_READ, conn, op);
        case RPMA_OP_WRITE:
            return prepare_op(request, IBV_WR_RDMA_WRITE, conn, op);
        case RPMA_OP_WRITE_WITH_IMM:
            result = prepare_op(request, IBV_WR_RDMA_WRITE_WITH_IMM, conn, op);
            set_immediate(request, op.imm);
            return result;
        case RPMA_OP_ATOMIC_WRITE:
            return prepare_atomic_write(request, &conn, op.remote, op.remote_offset, op.word, op.flags,
                                        op.op_context);
        case RPMA_OP_FLUSH:
            return prepare_flush(request, &conn, op.remote, op.remote_offset, op.len, op.flush_type, op.flags,
                                 op.op_context);
        case RPMA_OP_SEND:
            return prepare_op(request, IBV_WR_SEND, conn, op);
        case RPMA_OP_SEND_WITH_IMM:
            result = prepare_op(request, IBV_WR_SEND_WITH_IMM, conn, op);
            set_immediate(request, op.imm);
            return result;
        default:
            return invalid_op(op);
    }
}

// Returns how many requests of a chain were posted before the one that was refused.
template <typename Wr>
std::size_t posted_before(const Wr *chain, const Wr *bad) {
    std::size_t count = 0;
    for (; chain != bad && chain != nullptr; chain = chain->next) {
        ++count;
    }
    return count;
}

// Returns the return code for the result of posting a chain. A full queue is no failure: the program collects
// completions and continues.
[[gnu::noinline]] int posted_chain(int number) {
    return verbs::post_error(number) == ENOMEM ? RPMA_E_AGAIN : log_refused_post(number);
}

// The most operations of one chain.
constexpr std::size_t longest_chain = 32;

// The queue to which receives are posted.
struct ReceivingQueue {
    ibv_qp *qp;
    bool checks_bounds;
};

// These post the first operations together, and add their number to `posted`. That is at least one, unless
// they return the reason why one was refused. The operations that were prepared before that one are posted.
[[gnu::always_inline]] inline int post_first(const rpma_conn &conn, std::span<const rpma_op> ops,
                                             std::size_t &posted) {
    std::array<Request, longest_chain> chain;
    std::size_t size = 0;
    int result = 0;
    bool is_alone = false;
    while (size < ops.size() && size < longest_chain) {
        Request &request = chain[size];
        result = prepare(request, conn, ops[size]);
        if (result != 0) [[unlikely]] {
            break;
        }
        is_alone = is_posted_alone(conn, request);
        if (is_alone) [[unlikely]] {
            break;
        }
        request.wr.next = &chain[size + 1].wr;
        ++size;
    }
    if (size != 0) {
        chain[size - 1].wr.next = nullptr;
        ibv_send_wr *bad = nullptr;
        if (const int number = ibv_post_send(conn.qp(), &chain[0].wr, &bad); number != 0) [[unlikely]] {
            posted += posted_before(&chain[0].wr, bad);
            return posted_chain(number);
        }
        posted += size;
    }
    if (is_alone) [[unlikely]] {
        result = post_either(conn, chain[size]);
        posted += result == 0 ? 1 : 0;
    }
    return result;
}

[[gnu::always_inline]] inline int prepare(ibv_recv_wr &request, ibv_sge &part, const ReceivingQueue &queue,
                                          const rpma_recv_op &op) {
    if (op.reserved != 0 || !is_message(op.local, op.offset, op.len) ||
        (queue.checks_bounds && op.local != nullptr && !is_within(op.offset, op.len, op.local->size()))) {
        return invalid_call(
            "rpma_recv_many",
            "%zu bytes from %zu on: too many, outside of the region, without one, or reserved is not 0",
            op.len, op.offset);
    }
    request.wr_id = wr_id(op.op_context);
    request.sg_list = nullptr;
    request.num_sge = 0;
    if (op.local != nullptr) {
        part = op.local->part(op.offset, op.len);
        request.sg_list = &part;
        request.num_sge = 1;
    }
    return 0;
}

[[gnu::always_inline]] inline int post_first(const ReceivingQueue &queue, std::span<const rpma_recv_op> ops,
                                             std::size_t &posted) {
    std::array<ibv_recv_wr, longest_chain> chain;
    std::array<ibv_sge, longest_chain> parts;
    std::size_t size = 0;
    int result = 0;
    while (size < ops.size() && size < longest_chain) {
        ibv_recv_wr &request = chain[size];
        result = prepare(request, parts[size], queue, ops[size]);
        if (result != 0) [[unlikely]] {
            break;
        }
        request.next = &chain[++size];
    }
    if (size != 0) {
        chain[size - 1].next = nullptr;
        ibv_recv_wr *bad = nullptr;
        if (const int number = ibv_post_recv(queue.qp, chain.data(), &bad); number != 0) [[unlikely]] {
            posted += posted_before(chain.data(), bad);
            return posted_chain(number);
        }
        posted += size;
    }
    return result;
}

// Posts one operation, which needs no chain.
[[gnu::noinline]] int post_one(const rpma_conn &conn, const rpma_op &op, std::size_t *num_posted) {
    Request request;
    int result = prepare(request, conn, op);
    if (result == 0) [[likely]] {
        if (is_posted_alone(conn, request)) [[unlikely]] {
            result = post_either(conn, request);
        } else if (const int number = verbs::post(conn.qp(), request.wr); number != 0) [[unlikely]] {
            result = posted_chain(number);
        }
    }
    if (num_posted != nullptr) {
        *num_posted = result == 0 ? 1 : 0;
    }
    return result;
}

// Does the same for an operation with bytes; most of these are messages. It saves no register for the
// arguments. post_one() checks again an operation that is of another form, or breaks a rule.
[[gnu::always_inline]] inline int post_bytes(const rpma_conn &conn, const rpma_op &op,
                                             std::size_t *num_posted) {
    Request request;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    switch (op.type) {
        case RPMA_OP_WRITE:
            opcode = IBV_WR_RDMA_WRITE;
            break;
        [[likely]] case RPMA_OP_WRITE_WITH_IMM:
            opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            break;
        case RPMA_OP_SEND:
            break;
        case RPMA_OP_SEND_WITH_IMM:
            opcode = IBV_WR_SEND_WITH_IMM;
            break;
        default:
            return post_one(conn, op, num_posted);
    }
    const bool is_transfer = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if ((op.reserved[0] | op.reserved[1]) != 0 || !prepare_near_end(request, opcode, conn, op) ||
        (is_transfer && !prepare_far_end(request, conn, op))) [[unlikely]] {
        return post_one(conn, op, num_posted);
    }
    set_immediate(request, op.imm);
    const int number = verbs::post(conn.qp(), request.wr);
    if (num_posted != nullptr) {
        *num_posted = number == 0 ? 1 : 0;
    }
    if (number != 0) [[unlikely]] {
        return posted_chain(number);
    }
    return 0;
}

template <typename To, typename Operation>
[[gnu::noinline]] int post_all(const To &to, const Operation *ops, std::size_t num_ops,
                               std::size_t *num_posted) {
    const std::span all{ops, num_ops};
    std::size_t posted = 0;
    int result = 0;
    do {
        result = post_first(to, all.subspan(posted), posted);
    } while (result == 0 && posted < num_ops);
    if (num_posted != nullptr) {
        *num_posted = posted;
    }
    return result;
}

// Is for arguments that are not valid. It always writes *num_posted.
[[gnu::cold, gnu::noinline]] int posted_none(std::size_t *num_posted, const char *what,
                                             const char *function = __builtin_FUNCTION()) {
    if (num_posted != nullptr) {
        *num_posted = 0;
    }
    return invalid(what, function);
}

}  // namespace

}  // namespace librpma

int rpma_recv_many(struct rpma_conn *conn, const struct rpma_recv_op *ops, size_t num_ops,
                   size_t *num_posted) {
    if (conn == nullptr || ops == nullptr || num_ops == 0) {
        return librpma::posted_none(num_posted, "conn or ops is NULL, or num_ops is 0");
    }
    return librpma::post_all(
        librpma::ReceivingQueue{.qp = conn->qp(), .checks_bounds = conn->checks_bounds()}, ops, num_ops,
        num_posted);
}

int rpma_conn_req_recv_many(struct rpma_conn_req *req, const struct rpma_recv_op *ops, size_t num_ops,
                            size_t *num_posted) {
    if (req == nullptr || ops == nullptr || num_ops == 0 || !req->ready()) {
        return librpma::posted_none(
            num_posted,
            "req or ops is NULL, num_ops is 0, or the request is not ready (rpma_conn_req_proceed)");
    }
    return librpma::post_all(librpma::ReceivingQueue{.qp = req->qp(), .checks_bounds = req->checks_bounds()},
                             ops, num_ops, num_posted);
}

int rpma_post(struct rpma_conn *conn, const struct rpma_op *ops, size_t num_ops, size_t *num_posted) {
    if (num_ops == 1 && conn != nullptr && ops != nullptr) [[likely]] {
        return ops->bytes != nullptr ? librpma::post_bytes(*conn, *ops, num_posted)
                                     : librpma::post_one(*conn, *ops, num_posted);
    }
    if (conn == nullptr || ops == nullptr || num_ops == 0) {
        return librpma::posted_none(num_posted, "conn or ops is NULL, or num_ops is 0");
    }
    return librpma::post_all(*conn, ops, num_ops, num_posted);
}
