// SPDX-License-Identifier: BSD-3-Clause
#include "soft/connected/set_attributes.hpp"

#include <algorithm>
#include <new>

#include "base/log.hpp"
#include "soft/ground/limits.hpp"
#include "soft/queues/any_queue_pair.hpp"

namespace soft {

namespace {

struct ConnectedStep {
    ibv_qp_state from;
    ibv_qp_state to;
    int needed;      // of every type
    int needed_rc;   // of a reliable queue pair too (needed_part()); another one must not set it
    int allowed;     // of every type
    int allowed_rc;  // of a reliable queue pair too
};
constexpr int of_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr ConnectedStep connected_steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, of_init, 0, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, 0, of_init, 0},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX, 0},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE, IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, 0,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE, IBV_QP_MIN_RNR_TIMER},
};

// Those of the receiving and of the sending side, of which an XRC queue pair has only one.
constexpr int of_receiving = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int of_sending = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

// Returns the part of the attributes of reliable queue pairs that one of this type must have.
int needed_part(int attributes, ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_XRC_SEND:
            return attributes & ~of_receiving;
        case IBV_QPT_XRC_RECV:
            return attributes & ~of_sending;
        default:
            return attributes;
    }
}

constexpr unsigned number_bits = 24;
constexpr int most_timeout = 31;  // a field of five bits
constexpr int most_retries = 7;   // a field of three bits

// Returns the name of the first attribute whose value no queue pair can have; null when there is none.
const char *unusable(const ibv_qp_attr &attributes, int mask) {
    const auto is_set = [mask](int attribute) { return (mask & attribute) != 0; };
    if (is_set(IBV_QP_PORT) && attributes.port_num != 1) {
        return "port_num";
    }
    if (is_set(IBV_QP_PKEY_INDEX) && attributes.pkey_index != 0) {
        return "pkey_index";
    }
    if (is_set(IBV_QP_PATH_MTU) &&
        (attributes.path_mtu < IBV_MTU_256 || attributes.path_mtu > IBV_MTU_4096)) {
        return "path_mtu";
    }
    if (is_set(IBV_QP_DEST_QPN) && attributes.dest_qp_num >> number_bits != 0) {
        return "dest_qp_num";
    }
    if (is_set(IBV_QP_MAX_DEST_RD_ATOMIC) && attributes.max_dest_rd_atomic > limits::max_rd_atomic) {
        return "max_dest_rd_atomic";
    }
    if (is_set(IBV_QP_MAX_QP_RD_ATOMIC) && attributes.max_rd_atomic > limits::max_rd_atomic) {
        return "max_rd_atomic";
    }
    if (is_set(IBV_QP_MIN_RNR_TIMER) && attributes.min_rnr_timer > most_timeout) {
        return "min_rnr_timer";
    }
    if (is_set(IBV_QP_TIMEOUT) && attributes.timeout > most_timeout) {
        return "timeout";
    }
    if ((is_set(IBV_QP_RETRY_CNT) && attributes.retry_cnt > most_retries) ||
        (is_set(IBV_QP_RNR_RETRY) && attributes.rnr_retry > most_retries)) {
        return "retry_cnt or rnr_retry";
    }
    return nullptr;
}

}  // namespace

bool SetAttributes::allow(const ibv_qp &queue_pair, ibv_qp_state from, ibv_qp_state to,
                          const ibv_qp_attr &attributes, int mask) {
    const int set = mask & ~IBV_QP_STATE;
    const bool reliable = is_reliable(queue_pair.qp_type);
    const auto *const step = std::ranges::find_if(
        connected_steps, [&](const ConnectedStep &one) { return one.from == from && one.to == to; });
    if (step == std::end(connected_steps) ||
        ((set & IBV_QP_CUR_STATE) != 0 && attributes.cur_qp_state != from)) {
        BASE_LOG(Error, "queue pair 0x%06x cannot go from state %d to %d", queue_pair.qp_num, from, to);
        return false;
    }
    const int needed = step->needed | (reliable ? needed_part(step->needed_rc, queue_pair.qp_type) : 0);
    const int allowed = step->needed | step->allowed | (reliable ? step->needed_rc | step->allowed_rc : 0);
    if ((set & needed) != needed || (set & ~allowed) != 0) {
        BASE_LOG(Error, "queue pair 0x%06x, state %d to %d: attributes 0x%x are missing, 0x%x cannot be set",
                 queue_pair.qp_num, from, to, static_cast<unsigned>(needed & ~set),
                 static_cast<unsigned>(set & ~allowed));
        return false;
    }
    if (const char *const name = unusable(attributes, mask)) {
        BASE_LOG(Error, "queue pair 0x%06x: no queue pair of this device can have this %s", queue_pair.qp_num,
                 name);
        return false;
    }
    return true;
}

bool SetAttributes::make_room() {
    if (kept_ == nullptr) {
        kept_.reset(new (std::nothrow) ibv_qp_attr{});
    }
    return kept_ != nullptr;
}

void SetAttributes::take(const ibv_qp_attr &attributes, int mask) {
    if (kept_ == nullptr) {
        return;  // the mask has none of these
    }
    const auto keep = [&](int attribute, auto member) {
        if ((mask & attribute) != 0) {
            (*kept_).*member = attributes.*member;
        }
    };
    keep(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
    keep(IBV_QP_PORT, &ibv_qp_attr::port_num);
    keep(IBV_QP_AV, &ibv_qp_attr::ah_attr);
    keep(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
    keep(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
    keep(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
    keep(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
    keep(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
    keep(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
    keep(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
    keep(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
    keep(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
    keep(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
    if ((mask & IBV_QP_ALT_PATH) != 0) {  // it is kept, and never used
        kept_->alt_ah_attr = attributes.alt_ah_attr;
        kept_->alt_pkey_index = attributes.alt_pkey_index;
        kept_->alt_port_num = attributes.alt_port_num;
        kept_->alt_timeout = attributes.alt_timeout;
    }
    keep(IBV_QP_PATH_MIG_STATE, &ibv_qp_attr::path_mig_state);
}

void SetAttributes::tell(ibv_qp_attr &attributes) const {
    const ibv_qp_attr told = attributes;
    attributes = kept_ != nullptr ? *kept_ : ibv_qp_attr{};
    attributes.qp_state = told.qp_state;
    attributes.cur_qp_state = told.cur_qp_state;
    attributes.qp_access_flags = told.qp_access_flags;
    attributes.cap = told.cap;
}

}  // namespace soft
