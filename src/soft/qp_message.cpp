// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: incoming sends. A send takes the oldest posted receive. One that finds none is kept, within a
// bound, while the connection goes on being parsed; past the bound the stream stalls until a receive is
// posted.
#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "persist/guard.hpp"
#include "soft/limits.hpp"
#include "soft/qp.hpp"

namespace soft {

int QueuePair::post_receive(ibv_recv_wr *request, ibv_recv_wr **bad) {
    int error = 0;
    bool starved = false;
    for (; request != nullptr; request = request->next) {
        bool was_starved = false;
        if (request->num_sge < 0 || static_cast<unsigned>(request->num_sge) > cap_.max_recv_sge) {
            error = EINVAL;
        } else if (const auto posted = receives_.post(*request, was_starved); !posted) {
            error = posted.error().number;
        }
        if (error != 0) {
            *bad = request;
            break;
        }
        starved = starved || was_starved;
    }
    const Phase phase = phase_.load(std::memory_order_acquire);
    if (starved || (phase != Phase::Connected && phase != Phase::Idle)) {
        const std::scoped_lock lock{group_->mutex()};
        if (connected()) {
            deliver_unexpected();
        } else if (!idle()) {
            flush_receives();
        }
    }
    return error;
}

// Before a message is begun: one more than is kept.
bool QueuePair::message_must_wait() {
    if (message_ == Message::None && unexpected_.size() >= limits::max_unexpected_messages) {
        stall();
    }
    return stalled_;
}

void QueuePair::stall() {
    BASE_LOG(Info, "connection with %s waits for a receive: %zu messages of %zu bytes are kept",
             peer_.c_str(), unexpected_.size(), unexpected_bytes_.size());
    stalled_ = true;
    want_readable(false);
}

void QueuePair::begin_send() {
    if (segment_.msn != next_send_msn_) {
        violate({"a send out of sequence", wire::terminate::untagged_msn});
        return;
    }
    if (segment_.offset != message_bytes_) {
        violate(
            {"a segment of a send that does not follow the one before", wire::terminate::untagged_offset});
        return;
    }
    if (std::uint64_t{message_bytes_} + segment_.payload_bytes > limits::max_message_bytes) {
        violate({"a send longer than the largest message", wire::terminate::untagged_too_long});
        return;
    }
    place_at_ = message_bytes_;
    if (message_ == Message::None) {
        if (unexpected_.empty() && receives_.take(receive_)) {
            message_ = Message::Delivered;
        } else {
            message_ = Message::Kept;
            unexpected_.push_back({.bytes = 0, .complete = false, .solicited = false});
        }
    }
}

bool QueuePair::keep_unexpected(std::span<const std::byte> bytes) {
    if (unexpected_bytes_.size() + bytes.size() > limits::max_unexpected_bytes) {
        stall();
        return false;
    }
    unexpected_bytes_.insert(unexpected_bytes_.end(), bytes.begin(), bytes.end());
    unexpected_.back().bytes += static_cast<std::uint32_t>(bytes.size());
    return true;
}

void QueuePair::finish_send() {
    message_bytes_ += segment_.payload_bytes;
    if (!segment_.last) {
        return;
    }
    const bool solicited = segment_.opcode == wire::Opcode::SendSolicited;
    const Message message = std::exchange(message_, Message::None);
    const std::uint32_t length = std::exchange(message_bytes_, 0);
    ++next_send_msn_;
    if (message == Message::Delivered) {
        complete_receive(IBV_WC_SUCCESS, length, solicited);
    } else {
        unexpected_.back().complete = true;
        unexpected_.back().solicited = solicited;
    }
}

// Receives were posted: the kept messages take them.
void QueuePair::deliver_unexpected() {
    while (!unexpected_.empty() && receives_.take(receive_)) {
        const Unexpected message = unexpected_.front();
        std::size_t done = 0;
        if (!message.complete) {
            message_ = Message::Delivered;
        }
        while (done < message.bytes) {
            Target target;
            const ibv_wc_status status = aim_at(target, receive_.sges, done, message.bytes - done);
            if (status != IBV_WC_SUCCESS) {
                receive_failed(status);
                return;
            }
            for (std::size_t i = 0; i < target.count; ++i) {
                if (!persist::guarded_copy(target.pieces[i].iov_base, unexpected_bytes_.data() + done,
                                           target.pieces[i].iov_len)) {
                    receive_failed(IBV_WC_LOC_PROT_ERR);
                    return;
                }
                done += target.pieces[i].iov_len;
            }
        }
        unexpected_bytes_.erase(unexpected_bytes_.begin(), unexpected_bytes_.begin() + message.bytes);
        unexpected_.erase(unexpected_.begin());
        if (message.complete) {
            complete_receive(IBV_WC_SUCCESS, message.bytes, message.solicited);
        }
    }
    if (stalled_) {
        stalled_ = false;
        want_readable(true);
        parse();
        answer();
    }
}

// The receive in hand cannot be filled, and with it the connection ends.
void QueuePair::receive_failed(ibv_wc_status status) {
    message_ = Message::None;
    complete_receive(status, 0, false);
    if (connected()) {
        violate(status == IBV_WC_LOC_LEN_ERR ? wire::Violation{"a send longer than the receive posted for it",
                                                               wire::terminate::untagged_too_long}
                                             : wire::Violation{"a receive whose memory cannot be filled",
                                                               wire::terminate::local_catastrophic});
    }
}

void QueuePair::complete_receive(ibv_wc_status status, std::uint32_t length, bool solicited) {
    ibv_wc completion{};
    completion.wr_id = receive_.wr_id;
    completion.status = status;
    completion.opcode = IBV_WC_RECV;
    completion.byte_len = length;
    completion.qp_num = qp_num;
    const bool pushed = receive_queue_cq_.push(completion, *this, CompletionQueue::Queue::Receive, 1,
                                               solicited || status != IBV_WC_SUCCESS);
    if (!pushed && connected()) {
        violate({"a completion queue overrun", wire::terminate::local_catastrophic});
    }
}

void QueuePair::flush_receives() {
    if (message_ == Message::Delivered) {
        complete_receive(IBV_WC_WR_FLUSH_ERR, 0, false);
    }
    message_ = Message::None;
    while (receives_.take(receive_)) {
        complete_receive(IBV_WC_WR_FLUSH_ERR, 0, false);
    }
}

}  // namespace soft
