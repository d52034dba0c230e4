// SPDX-License-Identifier: BSD-3-Clause
#include "soft/queues/inbox.hpp"

#include <cerrno>
#include <utility>

#include "soft/ground/limits.hpp"
#include "soft/queues/any_queue_pair.hpp"

namespace soft {

namespace {

OrRefusal<> queue_is_destroyed() {
    return make_refusal({"a message to a receive queue that is destroyed", wire::terminate::untagged_queue});
}

}  // namespace

Inbox::Inbox(const ibv_qp &qp, const ibv_qp_cap &cap, CompletionQueue &completions, Completing &completing,
             TakesReceives &taker, Placed &placed, const XrcDomain *xrc)
    : qp_{qp},
      domain_{domain_of(qp.srq != nullptr ? *qp.srq->pd : *qp.pd)},
      max_sge_{cap.max_recv_sge},
      completions_{completions},
      completing_{completing},
      taker_{taker},
      placed_{placed},
      shared_{static_cast<SharedReceiveQueue *>(qp.srq)},
      xrc_{xrc},
      receives_{cap.max_recv_wr, cap.max_recv_sge} {
    receive_.sges.reserve(shared_ != nullptr ? shared_->max_sge()
                          : xrc != nullptr   ? std::size_t{limits::max_sge}
                                             : max_sge_);
}

[[gnu::hot]] int Inbox::post(ibv_recv_wr *request, ibv_recv_wr **bad, bool &starved) {
    int error = shared_ != nullptr || is_xrc(qp_.qp_type) ? EINVAL : 0;
    for (; request != nullptr; request = request->next) {
        bool was_starved = false;
        if (request->num_sge < 0 || static_cast<std::size_t>(request->num_sge) > max_sge_) {
            error = EINVAL;
        } else if (error == 0) {
            const auto posted = receives_.post(*request, was_starved);
            error = posted ? 0 : posted.error().number;
        }
        if (error != 0) {
            *bad = request;
            break;
        }
        starved = starved || was_starved;
    }
    return error;
}

void Inbox::begin() {
    message_ = Message::None;
    bytes_ = 0;
    next_msn_ = 1;
    kept_bytes_.clear();
    kept_.clear();
}

void Inbox::reset() {
    begin();
    if (shares()) {
        leave_line();
    } else {
        receives_.clear();
    }
}

void Inbox::leave_line() {
    if (shared_ != nullptr) {
        shared_->forget(taker_);
    } else if (xrc_ != nullptr) {
        xrc_->forget(taker_);
    }
}

// Returns the shared queue of a message; null when there is none, or it was destroyed.
SharedReceiveQueue *Inbox::shared(wire::Queue queue) const {
    return xrc_ != nullptr ? xrc_->find(queue) : shared_;
}

bool Inbox::take_receive(wire::Queue queue) {
    if (!shares()) {
        return receives_.take(receive_);
    }
    filled_ = queue;
    SharedReceiveQueue *const queue_of_message = shared(queue);
    return queue_of_message != nullptr && queue_of_message->take(receive_, taker_);
}

bool Inbox::is_full() const {
    return message_ == Message::None && kept_.size() >= limits::max_unexpected_messages;
}

// Returns whether messages, or the one that arrives, may name the queue. A queue pair that only sends has
// none.
bool Inbox::is_its_queue(wire::Queue queue) const {
    if (!is_xrc(qp_.qp_type)) [[likely]] {
        return queue == wire::Queue::Send;
    }
    return xrc_ != nullptr && xrc_->find(queue) != nullptr && (!inside_message() || queue == arriving_);
}

OrRefusal<> Inbox::check(const wire::Segment &segment, std::size_t more) const {
    if (!is_its_queue(segment.queue)) {
        return make_refusal(
            {"a message to a receive queue that is not there", wire::terminate::untagged_queue});
    }
    if (segment.msn != next_msn_) {
        return make_refusal({"a send out of sequence", wire::terminate::untagged_msn});
    }
    if (segment.offset != bytes_) {
        return make_refusal(
            {"a segment of a send that does not follow the one before", wire::terminate::untagged_offset});
    }
    if (bytes_ + more > limits::max_message_bytes) {
        return make_refusal({"a send longer than the largest message", wire::terminate::untagged_too_long});
    }
    return {};
}

[[gnu::hot]] void Inbox::begin(bool may_take, wire::Queue queue) {
    arriving_ = queue;
    if (kept_.empty() && may_take && take_receive(queue)) {
        message_ = Message::Delivered;
    } else {
        kept_.push_back({.queue = queue});
        message_ = Message::Kept;
    }
}

[[gnu::hot]] OrRefusal<> Inbox::aim(Target &target, std::size_t offset, std::size_t most_bytes) {
    const ibv_pd *domain = &domain_;
    if (xrc_ != nullptr) [[unlikely]] {
        const SharedReceiveQueue *const its = shared(filled_);
        if (its == nullptr) {
            return queue_is_destroyed();
        }
        domain = &domain_of(*its->pd);
    }
    const ibv_wc_status status = target.aim_at(domain, receive_.sges, offset, most_bytes);
    return status == IBV_WC_SUCCESS ? OrRefusal<>{} : receive_failed(status);
}

bool Inbox::keep(std::span<const std::byte> bytes) {
    if (kept_bytes_.size() + bytes.size() > limits::max_unexpected_bytes) {
        return false;
    }
    kept_bytes_.insert(kept_bytes_.end(), bytes.begin(), bytes.end());
    kept_.back().bytes += static_cast<std::uint32_t>(bytes.size());
    return true;
}

[[gnu::hot]] OrRefusal<> Inbox::message_arrived(const Arrived &arrived) {
    bytes_ = 0;
    ++next_msn_;
    if (std::exchange(message_, Message::None) == Message::Delivered) {
        return complete(IBV_WC_SUCCESS, arrived);
    }
    kept_.back().complete = true;
    kept_.back().arrived = arrived;
    return shares() ? deliver() : OrRefusal<>{};
}

OrRefusal<> Inbox::lose_message(const wire::Segment &segment) {
    auto follows = check(segment, 0);
    next_msn_ += follows ? 1 : 0;
    return follows;
}

OrRefusal<> Inbox::deliver() {
    const auto may_take = [this](const KeptMessage &message) {
        return !shares() || message.complete || message.bytes >= limits::shared_message_bytes;
    };
    while (!kept_.empty() && may_take(kept_.front()) && take_receive(kept_.front().queue)) {
        if (const auto delivered = deliver_oldest(); !delivered) {
            return delivered;
        }
    }
    if (xrc_ != nullptr && !kept_.empty() && shared(kept_.front().queue) == nullptr) {
        return queue_is_destroyed();
    }
    return {};
}

OrRefusal<> Inbox::deliver_oldest() {
    const KeptMessage message = kept_.front();
    if (!message.complete) {
        message_ = Message::Delivered;
    }
    for (std::size_t done = 0; done < message.bytes;) {
        Target target;
        if (const auto aimed = aim(target, done, message.bytes - done); !aimed) {
            return aimed;
        }
        if (target.fill(kept_bytes_.data() + done) != target.count) {
            return receive_failed(IBV_WC_LOC_PROT_ERR);
        }
        done += target.bytes;
    }
    kept_bytes_.erase(kept_bytes_.begin(), kept_bytes_.begin() + message.bytes);
    kept_.erase(kept_.begin());
    return message.complete ? complete(IBV_WC_SUCCESS, message.arrived) : OrRefusal<>{};
}

OrRefusal<> Inbox::receive_failed(ibv_wc_status status) {
    message_ = Message::None;
    if (const auto told = complete(status, {}); !told) {
        return told;
    }
    const auto violation =
        status == IBV_WC_LOC_LEN_ERR
            ? wire::Violation{"a send longer than the receive posted for it",
                              wire::terminate::untagged_too_long}
            : wire::Violation{"a receive whose memory cannot be filled", wire::terminate::local_catastrophic};
    return std::unexpected{Refusal{.violation = violation,
                                   .of = kept_.empty() ? Refusal::Of::Segment : Refusal::Of::KeptMessage}};
}

// The peer is told of a message only when the program is: its queue may be destroyed by now.
OrRefusal<> Inbox::complete(ibv_wc_status status, const Arrived &arrived) {
    SharedReceiveQueue *const its = xrc_ != nullptr ? shared(filled_) : nullptr;
    if (xrc_ != nullptr && its == nullptr) [[unlikely]] {
        return queue_is_destroyed();
    }
    if (status == IBV_WC_SUCCESS) {
        placed_.message();
    }
    ibv_wc completion{};
    completion.wr_id = receive_.wr_id;
    completion.status = status;
    completion.opcode = arrived.opcode;
    completion.byte_len = arrived.bytes;
    completion.imm_data = arrived.immediate;
    completion.wc_flags = arrived.flags;
    completion.qp_num = qp_.qp_num;
    const bool solicited = arrived.solicited || status != IBV_WC_SUCCESS;
    const bool had_room =
        its != nullptr ? its->complete(completion, solicited)
                       : completions_.push(completion, completing_, CompletionQueue::WorkQueue::Receive,
                                           shared_ != nullptr ? 0 : 1, solicited);
    if (!had_room) [[unlikely]] {
        return make_refusal({"a completion queue overrun", wire::terminate::local_catastrophic});
    }
    return {};
}

// A completion that finds no room is lost. The connection has ended anyway.
void Inbox::flush() {
    if (message_ == Message::Delivered) {
        static_cast<void>(complete(IBV_WC_WR_FLUSH_ERR, {}));
    }
    message_ = Message::None;
    if (shares()) {
        leave_line();
        return;
    }
    while (receives_.take(receive_)) {
        static_cast<void>(complete(IBV_WC_WR_FLUSH_ERR, {}));
    }
}

}  // namespace soft
