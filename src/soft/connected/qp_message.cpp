// SPDX-License-Identifier: BSD-3-Clause
// soft/qp: incoming sends. A send takes the oldest posted receive; of a shared queue when it is whole, or
// large and well begun, so that peers that begin messages and do not end them take nothing from others. One
// that finds none, or takes none yet, is kept, within a bound, while the connection goes on being parsed;
// past the bound the stream stalls until a receive is posted. The end of the stream comes behind them, though
// not later than limits::unclaimed_timeout after the last receive: then what still has none is dropped.
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <utility>

#include "base/log.hpp"
#include "persist/guard.hpp"
#include "soft/connected/qp.hpp"
#include "soft/ground/limits.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/ground/wrong_keys.hpp"

namespace soft {

int QueuePair::post_receives(ibv_recv_wr *request, ibv_recv_wr **bad) {
    if (shared_receives_ != nullptr) {
        *bad = request;
        return EINVAL;
    }
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
        const base::Lock lock{group_->mutex()};
        if (connected()) {
            deliver_unexpected();
        } else if (!idle()) {
            flush_receives();
        }
    }
    return error;
}

void QueuePair::receives_posted() {
    group_->mutex().assert_held();
    deliver_unexpected();
}

bool QueuePair::take_receive() {
    return shared_receives_ != nullptr ? shared_receives_->take(receive_, *this) : receives_.take(receive_);
}

// Before a message is begun: one more than is kept.
bool QueuePair::message_must_wait() {
    if (message_ == Message::None && unexpected_.size() >= limits::max_unexpected_messages) {
        stall();
    }
    return stalled_;
}

void QueuePair::stall() {
    serves();
    BASE_LOG_PEER(Info, "connection with %s waits for a receive: %zu messages of %zu bytes are kept",
                  peer_.c_str(), unexpected_.size(), unexpected_bytes_.size());
    stalled_ = true;
    want_readable(false);
}

// The peer has ended the stream, and is told to have sent what is before the end: programs that disconnect
// behind their last send count on it. A program that waits for that end before it posts receives gets it too.
void QueuePair::stream_ended() {
    if (unexpected_.empty() || !unexpected_.front().complete) {
        peer_closed();
        return;
    }
    stall();
    hold_end();
}

void QueuePair::hold_end() {
    const bool begins = !std::exchange(end_held_, true);
    want_readable(false);  // also when a break of the link has asked for it since
    if (begins) {
        group_->set_deadline(*this, base::Clock::now() + limits::unclaimed_timeout);
    }
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
    const std::size_t more = wire::is_send(segment_.opcode) ? segment_.payload_bytes : 0;
    if (message_bytes_ + more > limits::max_message_bytes) {
        violate({"a send longer than the largest message", wire::terminate::untagged_too_long});
        return;
    }
    place_at_ = message_bytes_;
    if (message_ == Message::None) {
        if (unexpected_.empty() && may_take_receive() && take_receive()) {
            message_ = Message::Delivered;
        } else {
            message_ = Message::Kept;
            unexpected_.emplace_back();
        }
    }
}

// For the message that begins.
bool QueuePair::may_take_receive() const {
    serves();
    if (shared_receives_ == nullptr || !wire::is_send(segment_.opcode)) {
        return true;
    }
    const std::size_t buffered_bytes = buffered().size();
    const std::size_t trailer = wire::fpdu_trailer_bytes(wire::segment_bytes(segment_));
    if (segment_.last && buffered_bytes >= payload_left_ + trailer) {
        return true;
    }
    return payload_left_ >= limits::shared_message_bytes &&
           (buffered_bytes >= limits::shared_message_bytes ||
            buffered_bytes + link_->unread_bytes() >= limits::shared_message_bytes);
}

std::uint64_t QueuePair::arrived_of_message() const {
    const bool inside = in_segment_ && wire::is_send(segment_.opcode);
    return std::uint64_t{message_bytes_} + (inside ? segment_.payload_bytes - payload_left_ : 0);
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
    serves();
    message_bytes_ += segment_.payload_bytes;
    if (!segment_.last) {
        return;
    }
    const bool invalidates = wire::invalidates(segment_.opcode);
    // Before the program hears of the message, even when it has yet to wait for its receive.
    if (invalidates && !invalidated_.add(peer(), segment_.stag)) {
        BASE_LOG_PEER(Warning, "%s invalidates key 0x%" PRIx32 ", which it has not, or has given back before",
                      peer_.c_str(), segment_.stag);
        WrongKeys::instance().note(origin_, base::Clock::now());
        violate({"a key that cannot be invalidated", wire::terminate::cannot_invalidate});
        return;
    }
    message_arrived({.opcode = IBV_WC_RECV,
                     .bytes = message_bytes_,
                     .solicited = segment_.opcode == wire::Opcode::SendSolicited ||
                                  segment_.opcode == wire::Opcode::SendSolicitedInvalidate,
                     .flags = invalidates ? unsigned{IBV_WC_WITH_INV} : 0U,
                     .immediate = invalidates ? segment_.stag : 0});
}

// Ends the send that is arriving; when there is none, it belongs to the write before it.
void QueuePair::immediate_arrived(std::span<const std::byte> body) {
    const auto immediate = wire::decode_immediate(body);
    if (!immediate) {
        violate(immediate.error());
        return;
    }
    const bool of_a_write = message_ == Message::None;
    if (of_a_write && (in_write_ || write_bytes_ > limits::max_message_bytes)) {
        violate({"immediate data inside a write, or behind one longer than the largest message",
                 wire::terminate::operation_unspecified});
        return;
    }
    begin_send();
    if (!connected()) {
        return;
    }
    message_arrived(
        {.opcode = of_a_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
         .bytes = of_a_write ? static_cast<std::uint32_t>(std::exchange(write_bytes_, 0)) : message_bytes_,
         .solicited = segment_.opcode == wire::Opcode::ImmediateSolicited,
         .flags = IBV_WC_WITH_IMM,
         .immediate = std::bit_cast<std::uint32_t>(*immediate)});
}

void QueuePair::message_arrived(const Arrival &arrival) {
    message_bytes_ = 0;
    ++next_send_msn_;
    if (std::exchange(message_, Message::None) == Message::Delivered) {
        complete_receive(IBV_WC_SUCCESS, arrival);
    } else {
        unexpected_.back().complete = true;
        unexpected_.back().arrival = arrival;
        if (shared_receives_ != nullptr) {
            deliver_unexpected();
        }
    }
}

// The kept messages take what receives there are.
void QueuePair::deliver_unexpected() {
    const auto may_take = [this](const Unexpected &message) {
        return shared_receives_ == nullptr || message.complete ||
               message.bytes >= limits::shared_message_bytes;
    };
    while (connected() && !unexpected_.empty() && may_take(unexpected_.front()) && take_receive()) {
        const Unexpected message = unexpected_.front();
        std::size_t done = 0;
        if (!message.complete) {
            message_ = Message::Delivered;
        }
        while (done < message.bytes) {
            Target target;
            const ibv_wc_status status = aim_at_receive(target, done, message.bytes - done);
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
            complete_receive(IBV_WC_SUCCESS, message.arrival);
        }
    }
    if (stalled_) {
        stalled_ = end_held_ = false;
        want_readable(true);
        resume();
    }
}

// Parses what was read before the connection waited, here or for storage; the peer has its whole time again
// for what is missing of a segment.
void QueuePair::resume() {
    parse();
    answer();
    segment_watched_ = message_watched_ = false;
    watch_segment();
    return_empty_buffer();
}

// The receive in hand cannot be filled, and with it the connection ends.
void QueuePair::receive_failed(ibv_wc_status status) {
    message_ = Message::None;
    complete_receive(status, {});
    if (!connected()) {
        return;
    }
    const auto violation =
        status == IBV_WC_LOC_LEN_ERR
            ? wire::Violation{"a send longer than the receive posted for it",
                              wire::terminate::untagged_too_long}
            : wire::Violation{"a receive whose memory cannot be filled", wire::terminate::local_catastrophic};
    if (unexpected_.empty()) {
        violate(violation);
    } else {
        terminate(violation, {}, {});  // the headers of kept messages are gone
    }
}

void QueuePair::complete_receive(ibv_wc_status status, const Arrival &arrival) {
    ibv_wc completion{};
    completion.wr_id = receive_.wr_id;
    completion.status = status;
    completion.opcode = arrival.opcode;
    completion.byte_len = arrival.bytes;
    completion.imm_data = arrival.immediate;
    completion.wc_flags = arrival.flags;
    completion.qp_num = qp_base.qp_num;
    const bool pushed = receive_queue_cq_.push(completion, *this, CompletionQueue::Queue::Receive,
                                               shared_receives_ != nullptr ? 0 : 1,
                                               arrival.solicited || status != IBV_WC_SUCCESS);
    if (!pushed && connected()) {
        violate({"a completion queue overrun", wire::terminate::local_catastrophic});
    }
}

// From a shared queue it flushes only the receive that is half filled: the others are not this connection's.
void QueuePair::flush_receives() {
    if (message_ == Message::Delivered) {
        complete_receive(IBV_WC_WR_FLUSH_ERR, {});
    }
    message_ = Message::None;
    if (shared_receives_ != nullptr) {
        shared_receives_->forget(*this);
        return;
    }
    while (receives_.take(receive_)) {
        complete_receive(IBV_WC_WR_FLUSH_ERR, {});
    }
}

}  // namespace soft
