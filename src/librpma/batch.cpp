// SPDX-License-Identifier: BSD-3-Clause
// librpma/batch: several operations, handed to the device together.
#include <array>
#include <cerrno>

#include "librpma/request.hpp"

namespace librpma {

namespace {

int prepare(Request &request, const rpma_conn *conn, const rpma_op &op) {
    const auto transfer = [&](ibv_wr_opcode opcode) {
        return prepare_transfer(request, opcode, conn, op.local, op.local_offset, op.remote, op.remote_offset,
                                op.len, op.flags, op.op_context);
    };
    const auto message = [&](ibv_wr_opcode opcode) {
        return prepare_message(request, opcode, conn, op.local, op.local_offset, op.len, op.flags,
                               op.op_context);
    };
    if (op.reserved[0] != 0 || op.reserved[1] != 0) {
        return RPMA_E_INVAL;
    }
    int result = 0;
    request.is_native = false;
    switch (op.type) {
        case RPMA_OP_READ:
            return transfer(IBV_WR_RDMA_READ);
        case RPMA_OP_WRITE:
            return transfer(IBV_WR_RDMA_WRITE);
        case RPMA_OP_WRITE_WITH_IMM:
            result = transfer(IBV_WR_RDMA_WRITE_WITH_IMM);
            set_immediate(request, op.imm);
            return result;
        case RPMA_OP_ATOMIC_WRITE:
            return prepare_atomic_write(request, conn, op.remote, op.remote_offset, op.word, op.flags,
                                        op.op_context);
        case RPMA_OP_FLUSH:
            return prepare_flush(request, conn, op.remote, op.remote_offset, op.len, op.flush_type, op.flags,
                                 op.op_context);
        case RPMA_OP_SEND:
            return message(IBV_WR_SEND);
        case RPMA_OP_SEND_WITH_IMM:
            result = message(IBV_WR_SEND_WITH_IMM);
            set_immediate(request, op.imm);
            return result;
        default:
            return RPMA_E_INVAL;
    }
}

// Requests that are prepared and not posted, linked.
class Chain {
public:
    explicit Chain(const rpma_conn &conn) : conn_{conn} {}

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
    std::size_t size_ = 0;
    std::size_t count_ = 0;
};

int Chain::add(const rpma_op &op) {
    if (size_ == longest) {
        if (const int result = post(); result != 0) {
            return result;
        }
    }
    Request &request = requests_[size_];
    if (const int result = prepare(request, &conn_, op); result != 0) {
        return result;
    }
    if (is_posted_alone(conn_, request)) {
        int result = post();
        result = result != 0 ? result : post_either(conn_, request);
        count_ += result == 0 ? 1 : 0;
        return result;
    }
    if (size_ > 0) {
        requests_[size_ - 1].wr.next = &request.wr;
    }
    ++size_;
    return 0;
}

int Chain::post() {
    if (size_ == 0) {
        return 0;
    }
    ibv_send_wr *refused = nullptr;
    const int number = ibv_post_send(conn_.qp(), &requests_[0].wr, &refused);
    const std::size_t size = std::exchange(size_, 0);
    if (number == 0) {
        count_ += size;
        return 0;
    }
    for (const ibv_send_wr *request = &requests_[0].wr; request != refused && request != nullptr;
         request = request->next) {
        ++count_;
    }
    // No failure: the caller collects completions and goes on.
    return verbs::post_error(number) == ENOMEM ? RPMA_E_AGAIN : refused_post(number);
}

}  // namespace

}  // namespace librpma

int rpma_post(struct rpma_conn *conn, const struct rpma_op *ops, size_t num_ops, size_t *num_posted) {
    if (num_posted != nullptr) {
        *num_posted = 0;
    }
    if (conn == nullptr || ops == nullptr || num_ops == 0) {
        return RPMA_E_INVAL;
    }
    librpma::Chain chain{*conn};
    int result = 0;
    for (size_t i = 0; i < num_ops && result == 0; ++i) {
        result = chain.add(ops[i]);
    }
    // What was prepared before one that is refused is posted.
    const int last = chain.post();
    if (num_posted != nullptr) {
        *num_posted = chain.count();
    }
    return result != 0 ? result : last;
}
