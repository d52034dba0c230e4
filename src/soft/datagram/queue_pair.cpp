// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram/queue_pair: the life and the states of a datagram queue pair, and its multicast groups.
#include "soft/datagram/queue_pair.hpp"

#include <net/if.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <new>

#include "base/error_text.hpp"
#include "base/log.hpp"
#include "soft/device/device.hpp"

namespace soft {

namespace {

constexpr unsigned port_bits = 16;

// 0xff is left out, because with it the number could be the multicast one.
std::uint32_t number_of(std::uint16_t port) {
    std::uint8_t chance = 0;
    (void)getrandom(&chance, sizeof(chance), 0);
    return first_datagram_number | static_cast<std::uint32_t>(chance % 0x7f) << port_bits | port;
}

// A change of state, and the attributes that must and may be set with it (the InfiniBand specification's
// table).
struct Step {
    ibv_qp_state from;
    ibv_qp_state to;
    int needed;
    int allowed;
};
constexpr Step steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
};

bool allowed(ibv_qp_state from, ibv_qp_state to, int mask) {
    const int rest = mask & ~IBV_QP_STATE;
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
        return rest == 0;
    }
    const auto *const step =
        std::ranges::find_if(steps, [&](const Step &one) { return one.from == from && one.to == to; });
    return step != std::end(steps) && (rest & step->needed) == step->needed &&
           (rest & ~(step->needed | step->allowed)) == 0;
}

}  // namespace

base::Result<DatagramQueuePair *> DatagramQueuePair::create(ibv_pd &pd, ibv_qp_init_attr &attributes) {
    if (attributes.srq != nullptr) {
        BASE_LOG(Error, "a UD queue pair cannot use a shared receive queue on this device");
        return base::failure(EOPNOTSUPP);
    }
    const auto cap = granted_sizes(attributes);
    if (!cap) {
        return std::unexpected{cap.error()};
    }
    const auto &device = *static_cast<const Device *>(pd.context->device);
    const std::uint32_t interface = if_nametoindex(device.interface.c_str());
    if (interface == 0) {
        return base::last_failure();
    }
    auto socket = udp::open(interface);
    if (!socket) {
        return std::unexpected{socket.error()};
    }
    attributes.cap = *cap;
    return new DatagramQueuePair{pd, attributes, std::move(*socket), interface};
}

DatagramQueuePair::DatagramQueuePair(ibv_pd &domain, const ibv_qp_init_attr &attributes, base::Fd socket,
                                     std::uint32_t interface)
    : AnyQueuePair{domain, attributes, number_of(udp::local_endpoint(socket.get()).port)},
      group_{send_queue_cq_.group()},
      socket_{std::move(socket)},
      interface_{interface},
      receives_{cap_.max_recv_wr, cap_.max_recv_sge},
      requests_{cap_} {
    qp_base.state = IBV_QPS_RESET;
    receive_.sges.reserve(cap_.max_recv_sge);
    attachments_.reserve(limits::max_groups_of_qp);
    const bool completes_elsewhere = receive_queue_cq_.group() != group_;
    if (completes_elsewhere) {
        receive_queue_cq_.serve_also(group_);
    }
    try {
        const base::Lock lock{group_->mutex()};
        group_->spread();
        group_->add(*this, socket_.get(), {.readable = true});
    } catch (const std::bad_alloc &) {
        if (completes_elsewhere) {
            receive_queue_cq_.stop_serving(group_);
        }
        throw;
    }
}

void DatagramQueuePair::leave() {
    forget_number();
    {
        const base::Lock lock{group_->mutex()};
        for (const Attachment &attachment : attachments_) {
            watch(attachment, false);
        }
        group_->remove(*this, socket_.get());
        log_drops();
    }
    forget_completions();
    if (receive_queue_cq_.group() != group_) {
        receive_queue_cq_.stop_serving(group_);
    }
}

void DatagramQueuePair::log_drops() const {
    const auto count = [this](Drop reason) {
        group_->mutex().assert_held();
        return drops_[static_cast<std::size_t>(reason)];
    };
    if (std::ranges::any_of(drops_, [](std::uint64_t drops) { return drops != 0; })) {
        BASE_LOG(Info,
                 "UD queue pair 0x%06x dropped datagrams: %" PRIu64 " without a receive, %" PRIu64
                 " longer than theirs, %" PRIu64 " before it was ready, %" PRIu64
                 " with another queue pair, address or Q_Key, %" PRIu64 " that are no messages",
                 qp_base.qp_num, count(Drop::NoReceive), count(Drop::TooLong), count(Drop::Unready),
                 count(Drop::Misaddressed), count(Drop::Malformed));
    }
}

int DatagramQueuePair::change_state(const ibv_qp_attr &attributes, int mask) {
    const base::Lock receiving{group_->mutex()};
    const base::Lock sending{send_mutex_};
    const ibv_qp_state now = phase_.load(std::memory_order_relaxed);
    const ibv_qp_state next = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : now;
    if (!allowed(now, next, mask) || ((mask & IBV_QP_CUR_STATE) != 0 && attributes.cur_qp_state != now) ||
        ((mask & IBV_QP_PORT) != 0 && attributes.port_num != 1) ||
        ((mask & IBV_QP_PKEY_INDEX) != 0 && attributes.pkey_index != 0)) {
        BASE_LOG(Error, "UD queue pair 0x%06x cannot go from state %d to %d with attributes 0x%x",
                 qp_base.qp_num, now, next, static_cast<unsigned>(mask));
        return EINVAL;
    }
    if ((mask & IBV_QP_QKEY) != 0) {
        qkey_.store(attributes.qkey, std::memory_order_relaxed);
    }
    if ((mask & IBV_QP_SQ_PSN) != 0) {
        send_psn_ = attributes.sq_psn;
    }
    enter(next);
    return 0;
}

void DatagramQueuePair::make_ready(std::uint32_t qkey) {
    const base::Lock receiving{group_->mutex()};
    const base::Lock sending{send_mutex_};
    qkey_.store(qkey, std::memory_order_relaxed);
    enter(IBV_QPS_RTS);
}

void DatagramQueuePair::enter(ibv_qp_state next) {
    phase_.store(next, std::memory_order_release);
    qp_base.state = next;
    if (next == IBV_QPS_ERR) {
        flush_requests();
        flush_receives();
    } else if (next == IBV_QPS_RESET) {
        forget_completions();
        requests_.clear();
        want_writable(false);
        unsignaled_ = 0;
        receives_.clear();
        has_receive_ = false;
    }
}

void DatagramQueuePair::query_state(ibv_qp_attr &attributes) const {
    const base::Lock lock{send_mutex_};
    attributes.qp_state = attributes.cur_qp_state = phase_.load(std::memory_order_relaxed);
    attributes.qkey = qkey_.load(std::memory_order_relaxed);
    attributes.sq_psn = send_psn_;
}

void DatagramQueuePair::release(CompletionQueue::WorkQueue queue, unsigned slots) {
    if (queue == CompletionQueue::WorkQueue::Receive) {
        receives_.release(slots);
    } else {
        uses_what_stays();
        requests_.release(slots);
    }
}

int DatagramQueuePair::attach(const ibv_gid &group) {
    if (inherited() || !udp::is_multicast(group)) {
        return EINVAL;
    }
    const base::Lock lock{group_->mutex()};
    const auto known = std::ranges::find_if(
        attachments_, [&](const Attachment &one) { return udp::same(one.group, group); });
    if (known != attachments_.end()) {
        return 0;
    }
    if (attachments_.size() == limits::max_groups_of_qp) {
        BASE_LOG(Error, "UD queue pair 0x%06x is in %zu multicast groups, the most there can be",
                 qp_base.qp_num, attachments_.size());
        return ENOMEM;
    }
    auto socket = udp::join(group, interface_);
    if (!socket) {
        BASE_LOG(Error, "UD queue pair 0x%06x cannot join a multicast group: %s", qp_base.qp_num,
                 base::error_text(socket.error().number));
        return socket.error().number;
    }
    attachments_.push_back({.group = group, .socket = std::move(*socket)});
    watch(attachments_.back(), true);
    return 0;
}

int DatagramQueuePair::detach(const ibv_gid &group) {
    if (inherited()) {
        return EINVAL;
    }
    const base::Lock lock{group_->mutex()};
    const auto known = std::ranges::find_if(
        attachments_, [&](const Attachment &one) { return udp::same(one.group, group); });
    if (known == attachments_.end()) {
        return EINVAL;
    }
    watch(*known, false);
    attachments_.erase(known);
    return 0;
}

// The queue pair is in its group as one source, with any number of sockets.
void DatagramQueuePair::watch(const Attachment &attachment, bool wanted) {
    group_->change(*this, attachment.socket.get(), {.readable = !wanted}, {.readable = wanted});
}

}  // namespace soft
