// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/qp: the life of a queue pair. See the header for the other parts.
#include "soft/connected/qp.hpp"
#include "base/shared_value.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/limits.hpp"
#include "soft/ground/tcp.hpp"
#include "softrdma.h"

namespace soft {

namespace {

// Room for a few small messages; with CRC32C on, for any FPDU, because it is checked before it is placed.
constexpr std::size_t buffer_bytes = 8192;
constexpr std::size_t crc_buffer_bytes =
    wire::fpdu_length_bytes + wire::max_segment_bytes + wire::fpdu_max_trailer_bytes;

// Between two soft devices FPDUs are as long as they can be; others expect one not longer than a TCP segment
// (RFC 5044 section 4.5), unless that has no room for any payload.
constexpr std::size_t segment_overhead_bytes = wire::untagged_bytes + wire::fpdu_crc_bytes;
constexpr std::size_t payload_alignment = 64;

std::size_t payload_bytes(bool soft_peer, const Link &link) {
    const std::size_t whole =
        soft_peer ? wire::max_segment_bytes : std::min(link.max_segment(), wire::max_segment_bytes);
    const std::size_t room = std::max(whole, segment_overhead_bytes + payload_alignment);
    return (room - segment_overhead_bytes) / payload_alignment * payload_alignment;
}

}  // namespace

std::atomic<unsigned> QueuePair::persists_returned{0};

base::Result<QueuePair *> QueuePair::create(ibv_pd &pd, ibv_qp_init_attr &attributes) {
    const auto cap = granted_sizes(attributes);
    if (!cap) {
        return std::unexpected{cap.error()};
    }
    attributes.cap = *cap;
    auto *const made = new QueuePair{pd, attributes, CompletionQueue::of(attributes.send_cq)->group()};
    if (made->faults_ != nullptr && made->faults_->timer() < 0) {
        destroy(made);
        return base::failure(EMFILE);
    }
    return made;
}

QueuePair::QueuePair(ibv_pd &domain, const ibv_qp_init_attr &attributes, std::shared_ptr<Group> group)
    : AnyQueuePair{domain, attributes},
      group_{std::move(group)},
      shared_receives_{static_cast<SharedReceiveQueue *>(attributes.srq)},
      receives_{cap_.max_recv_wr, cap_.max_recv_sge},
      requests_{cap_},
      responses_{0} {
    if (const Faults *const faults = Faults::active()) {
        faults_ = std::make_unique<RequestFaults>(*faults, qp_base.qp_num);
    }
    receive_.sges.reserve(shared_receives_ != nullptr ? shared_receives_->max_sge() : cap_.max_recv_sge);
    if (shared_receives_ != nullptr) {
        shared_receives_->attach();
    }
    try {
        if (receive_queue_cq_.group() != group_) {
            receive_queue_cq_.serve_also(group_);
        }
    } catch (const std::bad_alloc &) {
        if (shared_receives_ != nullptr) {
            shared_receives_->detach();
        }
        throw;
    }
}

void QueuePair::leave() {
    std::unique_ptr<Link> link;
    Origin origin{};
    Allowance allowance;
    while (true) {
        const unsigned returned = persists_returned.load(std::memory_order_acquire);
        {
            const base::Lock lock{group_->mutex()};
            going_ = true;
            if (serves(); link_) {
                const base::Lock sending{send_mutex_};
                changes();
                leave_group();
                link = std::move(link_);
                origin = origin_;
                allowance = std::move(allowance_);
            }
            if (phase_.load(std::memory_order_relaxed) == Phase::Draining && ending_locally_ &&
                owner_ != nullptr) {
                std::exchange(owner_, nullptr)->connection_ended();  // it waits to hear of it
            }
            base::set_shared(phase_, Phase::Ended, std::memory_order_release);
            if (shared_receives_ != nullptr) {
                shared_receives_->forget(*this);
            }
            if (!persisting_) {
                break;
            }
        }
        persists_returned.wait(returned, std::memory_order_acquire);
    }
    if (link) {
        link->finish();
        Engine::instance().drain(std::move(link), origin, std::move(allowance));
    }
    if (shared_receives_ != nullptr) {
        async_events_of(*qp_base.context).forget(&qp_base);
    }
    forget_completions();
    if (receive_queue_cq_.group() != group_) {
        receive_queue_cq_.stop_serving(group_);
    }
    forget_number();
}

QueuePair::~QueuePair() {
    if (shared_receives_ != nullptr) {
        shared_receives_->detach();
    }
}

void QueuePair::query_state(ibv_qp_attr &attributes) const {
    const base::Lock lock{send_mutex_};
    sends();
    attributes.qp_state = attributes.cur_qp_state = qp_base.state;
    attributes.qp_access_flags = granted_.load(std::memory_order_relaxed);
    attributes.max_rd_atomic = static_cast<std::uint8_t>(parameters_.ord);
    attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(parameters_.ird);
}

int QueuePair::change_state(const ibv_qp_attr &attributes, int mask) {
    const int error = (mask & IBV_QP_STATE) != 0 ? go_to(attributes, mask) : 0;
    if (error == 0 && (mask & IBV_QP_ACCESS_FLAGS) != 0) {
        base::set_shared(granted_, attributes.qp_access_flags & governed_access);
    }
    return error;
}

// A queue pair's states up to RTS are the connection manager's to change. Programs of rdma_cm ask for them
// too, in between; what they say with that of paths and numbers of packets means nothing on this wire.
int QueuePair::go_to(const ibv_qp_attr &attributes, int mask) {
    switch (attributes.qp_state) {
        case IBV_QPS_RESET:
        case IBV_QPS_INIT:
            if (idle()) {
                return 0;
            }
            BASE_LOG(Error, "queue pair %u was connected: it does not become one that can be again",
                     qp_base.qp_num);
            return EOPNOTSUPP;
        case IBV_QPS_RTR:
        case IBV_QPS_RTS:
            if (idle() && (mask & IBV_QP_DEST_QPN) != 0) {
                BASE_LOG(Error,
                         "queue pair %u: this device connects with rdma_connect and rdma_accept, not with "
                         "ibv_modify_qp",
                         qp_base.qp_num);
                return EOPNOTSUPP;
            }
            return in_error() ? EINVAL : 0;
        case IBV_QPS_ERR:
            give_up();
            return 0;
        default:
            return EOPNOTSUPP;
    }
}

bool QueuePair::in_error() const {
    const base::Lock lock{send_mutex_};
    return qp_base.state == IBV_QPS_ERR;
}

void QueuePair::release(CompletionQueue::Queue queue, unsigned slots) {
    if (queue == CompletionQueue::Queue::Receive) {
        receives_.release(slots);
    } else {
        uses_what_stays();
        requests_.release(slots);
    }
}

void QueuePair::start(std::unique_ptr<Link> link, const tcp::Address &peer,
                      const ConnectionParameters &parameters, ConnectionOwner *owner) {
    // The group's lock goes last: a thread that waits for it may then destroy this queue pair.
    const auto keeps_group = group_;
    const base::Lock receiving{group_->mutex()};
    if (going_) {
        owner->connection_ended();  // who destroys this only waits until nobody has found it any more
        return;
    }
    base::Lock sending{send_mutex_};
    changes();
    const bool given_up = !idle();
    // All that needs memory comes first: without it nothing has begun.
    responses_ = base::Ring<Response>{std::max<std::size_t>(parameters.ird, 1)};
    pins_.reserve(Batch::max_segments);
    batch_reads_.reserve(Batch::max_segments);
    if (parameters.crc) {
        batch_.use_crc();
    }
    Allowance allowance{origin_of(peer)};
    if (allowance.bytes() < limits::most_unread_bytes) {
        link->limit_unsent(allowance.bytes());
    }
    interest_ = {.readable = true};
    group_->add(*this, link->descriptor(), interest_);
    parameters_ = parameters;
    buffer_bytes_ = parameters.crc ? crc_buffer_bytes : buffer_bytes;
    max_payload_bytes_ = payload_bytes(parameters.soft_peer, *link);
    base::set_shared(peer_operations_,
                     parameters.soft_peer ? SOFTRDMA_OPERATION_FLUSH | SOFTRDMA_OPERATION_ATOMIC_WRITE |
                                                SOFTRDMA_OPERATION_IMMEDIATE | SOFTRDMA_OPERATION_ATOMIC
                                          : 0U,
                     std::memory_order_release);
    peer_ = tcp::text_of(peer);
    origin_ = origin_of(peer);
    allowance_ = std::move(allowance);
    link_ = std::move(link);
    owner_ = owner;
    qp_base.state = IBV_QPS_RTS;
    base::set_shared(phase_, Phase::Connected, std::memory_order_release);
    if (faults_ != nullptr) {
        group_->change(*this, faults_->timer(), {}, {.readable = true});
    }
    // Before the program hears: one that connects again has then said that it is ready.
    if (parameters.initiator) {
        peer_ready_ = true;
        may_transmit_ = true;
        ready_to_receive_due_ = parameters.ready_to_receive;
        transmit();
    }
    sending.unlock();
    // The responder says nothing before the initiator's first FPDU (RFC 5044 section 7.1.2). It waits with
    // ESTABLISHED too when that FPDU is promised, though not for ever; an initiator that promised none may be
    // one that only listens, and both programs would wait for each other.
    if (parameters.initiator || !parameters.ready_to_receive) {
        establish();
    } else {
        group_->set_deadline(*this, base::Clock::now() + limits::handshake_timeout);
    }
    if (given_up) {
        end({.text = "it was given up before it was connected",
             .level = static_cast<int>(base::LogLevel::Info),
             .oldest = IBV_WC_WR_FLUSH_ERR,
             .drain = true});
    }
}

void QueuePair::look_for_first_fpdu(bool readable) {
    const base::Lock lock{group_->mutex()};
    if (readable && connected() && !established_) {
        progress();
    }
}

void QueuePair::leave_group() {
    serves();
    if (!link_) {
        return;
    }
    group_->remove(*this, link_->descriptor());
    if (faults_ != nullptr) {
        group_->change(*this, faults_->timer(), {.readable = true}, {});
    }
}

void QueuePair::establish() {
    established_ = true;
    if (owner_ != nullptr) {
        owner_->connection_established();
    }
}

void QueuePair::forget_owner(const ConnectionOwner &owner) {
    const base::Lock lock{group_->mutex()};
    if (owner_ == &owner) {
        owner_ = nullptr;
    }
}

}  // namespace soft
