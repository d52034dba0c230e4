// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: the send queue, from ibv_post_send to a work completion. A write or send is done when the link has
// all its bytes, a read, flush or atomic operation when its answer is here; completions come in the order of
// posting.
#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "soft/connected/qp.hpp"
#include "soft/ground/limits.hpp"
#include "softrdma.h"

namespace soft {

namespace {

ibv_wc_opcode completion_opcode(int opcode) {
    switch (opcode) {
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_SEND:
        case IBV_WR_SEND_WITH_IMM:
        case IBV_WR_SEND_WITH_INV:
            return IBV_WC_SEND;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return IBV_WC_COMP_SWAP;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return IBV_WC_FETCH_ADD;
        case IBV_WR_ATOMIC_WRITE:
            return IBV_WC_ATOMIC_WRITE;
        case SOFTRDMA_WR_FLUSH:
            return static_cast<ibv_wc_opcode>(SOFTRDMA_WC_FLUSH);
        default:
            return IBV_WC_RDMA_WRITE;
    }
}

}  // namespace

int QueuePair::post_sends(ibv_send_wr *request, ibv_send_wr **bad, Part when_bad) {
    const base::Lock lock{send_mutex_};
    ibv_send_wr *const chain = request;
    const std::size_t before = requests_.size();
    int error = 0;
    for (; request != nullptr; request = request->next) {
        std::uint64_t bytes = 0;
        error = check(*request, bytes);
        if (error == 0) {
            error = enqueue(*request, static_cast<std::uint32_t>(bytes), when_bad);
        }
        if (error != 0) {
            *bad = request;
            if (when_bad == Part::Nothing) {
                requests_.take_back(requests_.size() - before);
            }
            break;
        }
    }
    if (phase_.load(std::memory_order_acquire) != Phase::Connected) {
        flush_requests(IBV_WC_WR_FLUSH_ERR);
        return error;
    }
    const std::size_t posted = requests_.size() - before;
    transmit();
    batch_.keep();
    const std::size_t waiting = std::min(posted, requests_.size() - first_unbuilt_);
    if (ibv_send_wr *const refused = requests_.keep_waiting(chain, posted, waiting)) {
        *bad = refused;
        return ENOMEM;
    }
    return error;
}

bool QueuePair::agreed(unsigned operation, const char *name) const {
    sends();
    if ((peer_operations_.load(std::memory_order_relaxed) & operation) != 0) {
        return true;
    }
    BASE_LOG(Error, "%s cannot be posted: %s does not have it, only another soft device has", name,
             peer_.c_str());
    return false;
}

// Checks what can be checked of a request when it is posted. Keys and memory are looked at when its turn
// comes.
int QueuePair::check(const ibv_send_wr &request, std::uint64_t &bytes) const {
    sends();
    const int opcode = static_cast<int>(request.opcode);
    if (phase_.load(std::memory_order_acquire) == Phase::Idle || request.num_sge < 0 ||
        static_cast<unsigned>(request.num_sge) > cap_.max_send_sge) {
        return EINVAL;
    }
    bytes = total_bytes(request);
    const bool is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
    if (bytes > limits::max_message_bytes ||
        (is_inline && (is_answered(opcode) || bytes > cap_.max_inline_data))) {
        return EINVAL;
    }
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_SEND:
        case IBV_WR_SEND_WITH_INV:
            return 0;
        case IBV_WR_RDMA_READ:
            return request.num_sge > limits::max_sge_rd || parameters_.ord == 0 ? EINVAL : 0;
        case IBV_WR_RDMA_WRITE_WITH_IMM:
        case IBV_WR_SEND_WITH_IMM:
            return agreed(SOFTRDMA_OPERATION_IMMEDIATE, "immediate data") ? 0 : EOPNOTSUPP;
        case IBV_WR_ATOMIC_WRITE:
            if (!agreed(SOFTRDMA_OPERATION_ATOMIC_WRITE, "ATOMIC WRITE")) {
                return EOPNOTSUPP;
            }
            return bytes != wire::atomic_write_bytes ||
                           request.wr.rdma.remote_addr % wire::atomic_write_bytes != 0
                       ? EINVAL
                       : 0;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            if (!agreed(SOFTRDMA_OPERATION_ATOMIC, "an atomic operation")) {
                return EOPNOTSUPP;
            }
            return bytes != wire::atomic_bytes || request.wr.atomic.remote_addr % wire::atomic_bytes != 0 ||
                           parameters_.ord == 0
                       ? EINVAL
                       : 0;
        case SOFTRDMA_WR_FLUSH:
            if (!agreed(SOFTRDMA_OPERATION_FLUSH, "FLUSH")) {
                return EOPNOTSUPP;
            }
            if (request.imm_data != SOFTRDMA_FLUSH_GLOBAL && request.imm_data != SOFTRDMA_FLUSH_PERSISTENT) {
                return EINVAL;
            }
            return request.num_sge > 1 || parameters_.ord == 0 ? EINVAL : 0;
        default:
            return EOPNOTSUPP;
    }
}

// Inline data that may take several segments is copied at once: a part of it could not be taken back.
int QueuePair::enqueue(const ibv_send_wr &request, std::uint32_t bytes, Part when_bad) {
    const bool is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
    const bool is_large = is_inline && bytes > Batch::max_copied_bytes;
    if (requests_.full() || (is_large && !batch_.make_room_to_keep())) {
        return ENOMEM;
    }
    const int opcode = static_cast<int>(request.opcode);
    SendRequest made{
        .signaled = signal_all_ || (request.send_flags & IBV_SEND_SIGNALED) != 0,
        .solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0,
        .fence = (request.send_flags & IBV_SEND_FENCE) != 0,
        .is_inline = is_inline,
        .sges = static_cast<std::uint8_t>(opcode == SOFTRDMA_WR_FLUSH ? 0 : request.num_sge),
        .opcode = opcode,
        .length = bytes,
        .rkey = request.wr.rdma.rkey,
        .immediate = request.imm_data,
        .wr_id = request.wr_id,
        .remote_address = request.wr.rdma.remote_addr,
    };
    if (is_atomic(opcode)) {
        made.rkey = request.wr.atomic.rkey;
        made.compare_add = request.wr.atomic.compare_add;
        made.swap = request.wr.atomic.swap;
    }
    SendRequest &pushed = requests_.push(made, request);
    const bool is_whole = bytes <= max_payload_bytes_ && faults_ == nullptr;
    if (is_inline && (when_bad == Part::Nothing || (is_large && !is_whole)) && !requests_.keep(pushed)) {
        requests_.take_back(1);
        return ENOMEM;
    }
    return 0;
}

// The request whose answer comes next.
QueuePair::SendRequest *QueuePair::oldest_awaiting() {
    for (std::size_t i = 0; i < first_unbuilt_; ++i) {
        SendRequest &request = requests_.at(i);
        if (request.state != SendRequest::State::Done && is_answered(request.opcode)) {
            return &request;
        }
    }
    return nullptr;
}

// Completions come in the order of posting.
void QueuePair::retire() {
    while (first_uncommitted_ != 0 && requests_.front().state == SendRequest::State::Done) {
        const SendRequest request = requests_.front();
        requests_.pop();
        --first_uncommitted_;
        --first_unbuilt_;
        complete(request);
        const bool is_last = last_left_ == 1;
        last_left_ -= last_left_ != 0 ? 1 : 0;
        if (is_last) {
            all_sent_ = true;
            want_writable(true);  // the thread that serves the group ends the connection
        }
    }
}

void QueuePair::complete(const SendRequest &request) {
    ++unsignaled_;
    if (!request.signaled && request.status == IBV_WC_SUCCESS) {
        return;
    }
    ibv_wc completion{};
    completion.wr_id = request.wr_id;
    completion.status = request.status;
    completion.opcode = completion_opcode(request.opcode);
    completion.byte_len = request.length;
    completion.qp_num = qp_base.qp_num;
    const bool pushed = send_queue_cq_.push(completion, *this, CompletionQueue::Queue::Send, unsignaled_,
                                            request.status != IBV_WC_SUCCESS);
    unsignaled_ = 0;
    if (!pushed) {
        break_link(ENOBUFS);
    }
}

// The oldest open request gets the status; everything behind it is flushed, also a write that the link has:
// the target did nothing that came after what failed.
void QueuePair::flush_requests(ibv_wc_status oldest) {
    bool failed = false;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
        SendRequest &request = requests_.at(i);
        if (failed) {
            request.status = IBV_WC_WR_FLUSH_ERR;
        } else if (request.state != SendRequest::State::Done) {
            failed = true;
            if (request.status == IBV_WC_SUCCESS) {
                request.status = oldest;
            }
        }
        request.state = SendRequest::State::Done;
    }
    first_uncommitted_ = first_unbuilt_ = requests_.size();
    request_offset_ = 0;
    awaiting_ = 0;
    retire();
}

}  // namespace soft
