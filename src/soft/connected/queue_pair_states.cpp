// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/queue_pair: the states of a queue pair, as verbs sets and tells them. A program brings a
// queue pair to RTS itself and names the peer's number, or leaves that to the connection manager.
#include "soft/connected/queue_pair.hpp"

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

// Returns how long a card sends a request that nobody acknowledges. 0 is without an end.
base::Clock::duration tries_of(const ibv_qp_attr &attributes) {
    const std::chrono::nanoseconds one_try{
        attributes.timeout == 0 ? 0 : std::int64_t{4096} << attributes.timeout};
    return one_try * (attributes.retry_cnt + 1);
}

// Returns how long a peer has to answer: as long as a card tries, but long enough for a process that is
// stopped, or has to wait for a processor.
base::Clock::duration time_to_answer(base::Clock::duration tries, bool reliable) {
    if (reliable && tries == base::Clock::duration::zero()) {
        return base::Clock::duration::max();
    }
    return std::max<base::Clock::duration>(tries, limits::in_force().least_time_to_answer);
}

}  // namespace

void QueuePair::query_state(ibv_qp_attr &attributes) const {
    const base::Lock changes{changes_};
    const auto [state, parameters] = sender_.query();
    attributes.qp_state = attributes.cur_qp_state = state;
    attributes.qp_access_flags = access_.granted();
    attributes.max_rd_atomic = static_cast<std::uint8_t>(parameters.ord);
    attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(parameters.ird);
    attributes.timeout = parameters.ack_timeout;
    if (by_number_.load(std::memory_order_relaxed)) {
        set_.tell(attributes);
    }
}

int QueuePair::change_state(const ibv_qp_attr &attributes, int mask) {
    const base::Lock changes{changes_};
    if ((mask & ~(IBV_QP_STATE | IBV_QP_ACCESS_FLAGS)) != 0 && !set_.make_room()) {
        return ENOMEM;
    }
    const int error =
        (mask & IBV_QP_STATE) != 0 ? enter_state(attributes, mask) : keep_state(attributes, mask);
    if (error != 0) {
        return error;
    }
    set_.take(attributes, mask);
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
        access_.grant(attributes.qp_access_flags & most_access());
    }
    if ((mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_RTR &&
        by_number_.load(std::memory_order_relaxed)) {
        connector_->begin();
    }
    return 0;
}

int QueuePair::keep_state(const ibv_qp_attr &attributes, int mask) const {
    const ibv_qp_state now = sender_.query().state;
    return !by_number_.load(std::memory_order_relaxed) ||
                   SetAttributes::allow(qp_base, now, now, attributes, mask)
               ? 0
               : EINVAL;
}

// Programs of rdma_cm ask for states up to RTS too, without naming a peer: the connection manager changes
// them.
int QueuePair::enter_state(const ibv_qp_attr &attributes, int mask) {
    const bool by_number = by_number_.load(std::memory_order_relaxed);
    const bool names_peer = (mask & IBV_QP_DEST_QPN) != 0;
    const bool leaves = attributes.qp_state == IBV_QPS_RESET || attributes.qp_state == IBV_QPS_ERR;
    if (by_number && leaves && mask != IBV_QP_STATE) {
        BASE_LOG(Error, "queue pair 0x%06x, to state %d: attributes 0x%x cannot be set", qp_base.qp_num,
                 attributes.qp_state, static_cast<unsigned>(mask & ~IBV_QP_STATE));
        return EINVAL;
    }
    switch (attributes.qp_state) {
        case IBV_QPS_RESET:
        case IBV_QPS_INIT:
            return enter_first_state(attributes, mask);
        case IBV_QPS_RTR:
        case IBV_QPS_RTS:
            if (by_number || (names_peer && connector_ != nullptr && idle())) {
                return attributes.qp_state == IBV_QPS_RTR ? become_ready_to_receive(attributes, mask)
                                                          : become_ready_to_send(attributes, mask);
            }
            if (names_peer && idle()) {
                BASE_LOG(Error,
                         "queue pair 0x%06x is an id's: rdma_connect and rdma_accept connect it, and not "
                         "ibv_modify_qp",
                         qp_base.qp_num);
                return EOPNOTSUPP;
            }
            return sender_.query().state == IBV_QPS_ERR ? EINVAL : 0;
        case IBV_QPS_ERR:
            if (connector_ != nullptr) {
                connector_->stop();
            }
            give_up();
            return 0;
        default:
            return EOPNOTSUPP;
    }
}

// RESET and INIT. Programs for iWARP, which has no P_Keys, set less with INIT than programs for RoCE have to.
int QueuePair::enter_first_state(const ibv_qp_attr &attributes, int mask) {
    const ibv_qp_state now = sender_.query().state;
    const bool by_number = by_number_.load(std::memory_order_relaxed);
    const bool never_connected = link_name() == nullptr;
    if (connector_ == nullptr || (!by_number && !never_connected)) {
        if (idle()) {
            return 0;
        }
        BASE_LOG(Error, "queue pair 0x%06x was connected by an id: it does not become one that can be again",
                 qp_base.qp_num);
        return EOPNOTSUPP;
    }
    if (attributes.qp_state == IBV_QPS_RESET) {
        reset();
        return 0;
    }
    if (qp_base.context->device->transport_type == IBV_TRANSPORT_IB &&
        !SetAttributes::allow(qp_base, now, IBV_QPS_INIT, attributes, mask)) {
        return EINVAL;
    }
    if (now != IBV_QPS_RESET && now != IBV_QPS_INIT) {
        BASE_LOG(Error, "queue pair 0x%06x cannot go from state %d to INIT", qp_base.qp_num, now);
        return EINVAL;
    }
    sender_.set_state(IBV_QPS_INIT);
    return 0;
}

int QueuePair::become_ready_to_receive(const ibv_qp_attr &attributes, int mask) {
    if (!SetAttributes::allow(qp_base, sender_.query().state, IBV_QPS_RTR, attributes, mask)) {
        return EINVAL;
    }
    if (const auto aimed = connector_->aim(attributes); !aimed) {
        return aimed.error().number;
    }
    sender_.set_state(IBV_QPS_RTR);
    base::set_shared(by_number_, true);
    return 0;
}

int QueuePair::become_ready_to_send(const ibv_qp_attr &attributes, int mask) {
    base::Clock::duration tries;
    {
        const base::Lock lock{group_->mutex()};  // a peer may just end the connection
        const ibv_qp_state now = sender_.query().state;
        if (!SetAttributes::allow(qp_base, now, IBV_QPS_RTS, attributes, mask)) {
            return EINVAL;
        }
        if (now == IBV_QPS_RTS) {
            return 0;
        }
        tries_ = is_reliable() ? tries_of(attributes) : base::Clock::duration::zero();
        tries = tries_;
        if (qp_base.qp_type == IBV_QPT_XRC_RECV) {
            sender_.set_state(IBV_QPS_RTS);  // it sends nothing but answers
        } else {
            sender_.open(is_reliable() ? attributes.max_rd_atomic : std::uint16_t{0});
        }
    }
    connector_->expect_answer_within(time_to_answer(tries, is_reliable()));
    return 0;
}

void QueuePair::reset() {
    connector_->stop();
    take_down(false);
    {
        const base::Lock lock{group_->mutex()};
        last_words_.clear();
        end_is_due_ = false;
        owner_ = nullptr;
        end_error_.store(0, std::memory_order_release);
        // First, because a completion that is polled frees a place of these queues.
        send_queue_cq_.remove(*this);
        receive_queue_cq_.remove(*this);
        sender_.reset();
        receiver_.stop();
        inbox_.reset();
        state_.on(ConnectionEvent::Resets);
    }
    set_link_name(nullptr);
    access_.grant(most_access());
    set_.forget();
    base::set_shared(by_number_, false);
}

// Is called when a request was posted that may have no link. It may have left before the link was lost.
void QueuePair::requests_wait() {
    if (!waits_to_send()) {
        return;
    }
    {
        const base::Lock lock{group_->mutex()};
        if (state_.now() == ConnectionState::Lost) {
            fail_after_tries();
            return;
        }
    }
    connector_->send_waits();
}

// A peer's queue pairs have links of their own, so what it acknowledged on another one before it ended may
// come later than the end of this link. A card tries for so long that the program gets that first. Where a
// card would try for ever, the request fails at once.
void QueuePair::fail_after_tries() {
    if (tries_ == base::Clock::duration::zero()) {
        end_unanswered();
    } else if (!has_deadline()) {
        group_->set_deadline(*this, base::Clock::now() + tries_);
    }
}

bool QueuePair::nobody_answers() {
    if (!group_->mutex().try_lock()) {
        return false;
    }
    const base::Lock lock{group_->mutex(), base::adopt};
    if (state_.now() == ConnectionState::Idle && waits_to_send()) {
        BASE_LOG_PEER(Warning, "nobody answers queue pair 0x%06x", qp_base.qp_num);
        end_unanswered();
    }
    return true;
}

// Nothing ends an unreliable queue pair: its requests are lost on the way.
void QueuePair::end_unanswered() {
    if (!is_reliable()) {
        sender_.drop_requests();
        return;
    }
    end_error_.store(ETIMEDOUT, std::memory_order_release);
    sender_.give_up(IBV_WC_RETRY_EXC_ERR);
    state_.on(ConnectionEvent::Ends);
    inbox_.flush();
    if (inbox_.shares()) {
        async_events_of(*qp_base.context).push(IBV_EVENT_QP_LAST_WQE_REACHED, &qp_base);
    }
}

}  // namespace soft
