// SPDX-License-Identifier: BSD-3-Clause
// librpma/batch: several operations, handed to the device together.
#include <array>
#include <cerrno>

#include "librpma/conn_req.hpp"
#include "librpma/request.hpp"

namespace librpma {

namespace {

// Whether an operation has a source that is given as bytes, or a place that is given as address and key.
bool has_bytes(const rpma_op &op, ibv_wr_opcode opcode) {
    return op.bytes != nullptr && opcode != IBV_WR_RDMA_READ;
}
bool has_address(const rpma_op &op) {
    return op.remote_addr != 0 || op.remote_key != 0;
}

// The near end: bytes that the post takes, a part of a region, or nothing. False: it is not given in one of
// these ways.
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

// A transfer with an end that no region names.
[[gnu::always_inline]] inline int prepare_without_region(Request &request, ibv_wr_opcode opcode,
                                                         const rpma_conn &conn, const rpma_op &op) {
    if (!prepare_near_end(request, opcode, conn, op)) {
        return invalid_near_end(op);
    }
    verbs::Remote place{.address = op.remote_addr, .rkey = op.remote_key};
    if (op.remote != nullptr) {
        if (has_address(op) ||
            (conn.checks_bounds() && !is_within(op.remote_offset, op.len, op.remote->size()))) {
            return invalid_far_end(op);
        }
        place = op.remote->at(op.remote_offset);
    } else if (!has_address(op)) {
        return invalid_far_end(op);
    }
    request.wr.wr.rdma.remote_addr = place.address;
    request.wr.wr.rdma.rkey = place.rkey;
    return 0;
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

int prepare(Request &request, const rpma_conn &conn, const rpma_op &op) {
    if ((op.reserved[0] | op.reserved[1]) != 0) {
        return invalid_call("rpma_post", "reserved members are not 0");
    }
    int result = 0;
    request.is_native = false;
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
            return invalid_call("rpma_post", "%d is no type of operation", op.type);
    }
}

// How many of a chain were posted when one of them was refused.
template <typename Wr>
std::size_t posted_before(const Wr *chain, const Wr *refused) {
    std::size_t count = 0;
    for (; chain != refused && chain != nullptr; chain = chain->next) {
        ++count;
    }
    return count;
}

// The return code for what posting a chain returned. A full queue is no failure: the caller collects
// completions and goes on.
int posted_chain(int number) {
    return number != 0 && verbs::post_error(number) == ENOMEM ? RPMA_E_AGAIN : posted(number);
}

// Requests that are prepared and not posted, linked.
class Chain {
public:
    explicit Chain(const rpma_conn &conn) : conn_{conn} {}
    Chain(const Chain &) = delete;
    Chain &operator=(const Chain &) = delete;

    // How many were posted.
    [[nodiscard]] std::size_t count() const { return count_; }
    // Adds an operation; what the device takes only by itself is posted, with all before it.
    [[nodiscard]] int add(const rpma_op &op);
    // Posts what there is.
    [[nodiscard]] int post();

private:
    static constexpr std::size_t longest = 32;

    const rpma_conn &conn_;
    std::array<Request, longest> requests_;
    Request *next_ = requests_.data();
    std::size_t count_ = 0;
};

int Chain::add(const rpma_op &op) {
    if (next_ == requests_.data() + longest) {
        if (const int result = post(); result != 0) {
            return result;
        }
    }
    Request &request = *next_;
    if (const int result = prepare(request, conn_, op); result != 0) {
        return result;
    }
    if (is_posted_alone(conn_, request)) {
        int result = post();
        result = result != 0 ? result : post_either(conn_, request);
        count_ += result == 0 ? 1 : 0;
        return result;
    }
    if (next_ != requests_.data()) {
        next_[-1].wr.next = &request.wr;
    }
    ++next_;
    return 0;
}

int Chain::post() {
    if (next_ == requests_.data()) {
        return 0;
    }
    ibv_send_wr *refused = nullptr;
    const int number = ibv_post_send(conn_.qp(), &requests_[0].wr, &refused);
    const auto size = static_cast<std::size_t>(std::exchange(next_, requests_.data()) - requests_.data());
    count_ += number == 0 ? size : posted_before(&requests_[0].wr, refused);
    return posted_chain(number);
}

// Receives of one queue, in chains that are posted one behind the other.
class ReceiveChain {
public:
    ReceiveChain(ibv_qp *qp, bool checks_bounds) : qp_{qp}, checks_bounds_{checks_bounds} {}

    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] int add(const rpma_recv_op &op);
    [[nodiscard]] int post();

private:
    static constexpr std::size_t longest = 64;

    ibv_qp *const qp_;
    const bool checks_bounds_;
    std::array<ibv_recv_wr, longest> requests_;
    std::array<ibv_sge, longest> parts_;
    std::size_t size_ = 0;
    std::size_t count_ = 0;
};

int ReceiveChain::add(const rpma_recv_op &op) {
    if (op.reserved != 0 || !is_message(op.local, op.offset, op.len) ||
        (checks_bounds_ && op.local != nullptr && !is_within(op.offset, op.len, op.local->size()))) {
        return invalid_call(
            "rpma_recv_many",
            "%zu bytes from %zu on: too many, outside of the region, without one, or reserved is not 0",
            op.len, op.offset);
    }
    if (size_ == longest) {
        if (const int result = post(); result != 0) {
            return result;
        }
    }
    ibv_sge *part = nullptr;
    if (op.local != nullptr) {
        part = &parts_[size_];
        *part = op.local->part(op.offset, op.len);
    }
    requests_[size_] = {
        .wr_id = wr_id(op.op_context), .next = nullptr, .sg_list = part, .num_sge = part != nullptr ? 1 : 0};
    if (size_ > 0) {
        requests_[size_ - 1].next = &requests_[size_];
    }
    ++size_;
    return 0;
}

int ReceiveChain::post() {
    if (size_ == 0) {
        return 0;
    }
    ibv_recv_wr *refused = nullptr;
    const int number = ibv_post_recv(qp_, requests_.data(), &refused);
    const std::size_t size = std::exchange(size_, 0);
    count_ += number == 0 ? size : posted_before(requests_.data(), refused);
    return posted_chain(number);
}

template <typename Chain, typename Operation>
int post_all(Chain &&chain, const Operation *ops, std::size_t num_ops, std::size_t *num_posted) {
    int result = 0;
    for (std::size_t i = 0; i < num_ops && result == 0; ++i) {
        result = chain.add(ops[i]);
    }
    // What was prepared before one that is refused is posted.
    const int last = chain.post();
    if (num_posted != nullptr) {
        *num_posted = chain.count();
    }
    return result != 0 ? result : last;
}

// Checks the arguments of a function that posts several; *num_posted is always written.
template <typename Object, typename Operation>
bool can_post(const Object *object, const Operation *ops, std::size_t num_ops, std::size_t *num_posted) {
    if (num_posted != nullptr) {
        *num_posted = 0;
    }
    return object != nullptr && ops != nullptr && num_ops != 0;
}

}  // namespace

}  // namespace librpma

int rpma_recv_many(struct rpma_conn *conn, const struct rpma_recv_op *ops, size_t num_ops,
                   size_t *num_posted) {
    if (!librpma::can_post(conn, ops, num_ops, num_posted)) {
        return librpma::invalid("conn or ops is NULL, or num_ops is 0");
    }
    return librpma::post_all(librpma::ReceiveChain{conn->qp(), conn->checks_bounds()}, ops, num_ops,
                             num_posted);
}

int rpma_conn_req_recv_many(struct rpma_conn_req *req, const struct rpma_recv_op *ops, size_t num_ops,
                            size_t *num_posted) {
    if (!librpma::can_post(req, ops, num_ops, num_posted) || !req->ready()) {
        return librpma::invalid(
            "req or ops is NULL, num_ops is 0, or the request is not ready (rpma_conn_req_proceed)");
    }
    return librpma::post_all(librpma::ReceiveChain{req->qp(), req->checks_bounds()}, ops, num_ops,
                             num_posted);
}

int rpma_post(struct rpma_conn *conn, const struct rpma_op *ops, size_t num_ops, size_t *num_posted) {
    if (!librpma::can_post(conn, ops, num_ops, num_posted)) {
        return librpma::invalid("conn or ops is NULL, or num_ops is 0");
    }
    return librpma::post_all(librpma::Chain{*conn}, ops, num_ops, num_posted);
}
