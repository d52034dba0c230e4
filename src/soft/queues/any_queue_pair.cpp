// SPDX-License-Identifier: BSD-3-Clause
#include "soft/queues/any_queue_pair.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <unordered_map>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "soft/ground/limits.hpp"
#include "soft/memory/memory.hpp"
#include "soft/queues/shared_receive.hpp"

namespace soft {

namespace {

constexpr std::uint32_t first_number = 2;  // 0 and 1 are special on InfiniBand

// Returns the next number whose lower bits are no port that a queue pair by number may have
// (lowest_port_of_number).
constexpr std::uint32_t after(std::uint32_t number) {
    const std::uint32_t next = number + 1;
    const bool is_port = (next & UINT16_MAX) >= lowest_port_of_number;
    const std::uint32_t free = is_port ? (next | UINT16_MAX) + 1 : next;
    return free < first_datagram_number ? free : first_number;
}

constinit base::LastingMutex numbers_lock;  // no other lock is taken with it

const base::HeldWhileForking<numbers_lock> numbers_survive_forks{base::ForkLevel::SoftQueues};

// Counts holds of queue pairs that ended: a thread that destroys a queue pair waits for a change.
std::atomic<unsigned> holds_ended{0};

// A queue pair has its number from the beginning, but is not found by it until it is complete.
struct Numbered {
    AnyQueuePair *queue_pair;
    bool complete = false;
};
using Numbers = std::unordered_map<std::uint32_t, Numbered>;
Numbers &numbers() REQUIRES(numbers_lock) {
    static auto &all =
        *new Numbers;  // never destroyed, because queue pairs may be destroyed while the process ends
    return all;
}

std::uint32_t numbered(AnyQueuePair &queue_pair, std::uint32_t given) {
    static std::uint32_t next = first_number;
    const base::Lock lock{numbers_lock};
    if (given != 0) {
        numbers().insert_or_assign(given, Numbered{&queue_pair});
        return given;
    }
    while (true) {
        const std::uint32_t number = next;
        next = after(next);
        if (numbers().emplace(number, Numbered{&queue_pair}).second) {
            return number;
        }
    }
}

std::uint64_t next_creation() {
    static std::atomic<std::uint64_t> created{0};
    return created.fetch_add(1, std::memory_order_relaxed) + 1;
}

constexpr std::uint32_t least_inline_bytes = 16;

bool exceeds(const ibv_qp_cap &cap) {
    return cap.max_send_wr > limits::max_qp_wr || cap.max_recv_wr > limits::max_qp_wr ||
           cap.max_send_sge > limits::max_sge || cap.max_recv_sge > limits::max_sge ||
           cap.max_inline_data > limits::max_inline_data;
}

// verbs lets a device give more than a program asks for. This gives at least one scatter entry, because a
// queue without one cannot be used. It also gives the inline bytes that librdmacm's rsockets (before version
// 51) need in their bandwidth mode but do not ask for: on iWARP they send each message, and the place for the
// next bytes, inline.
ibv_qp_cap given(ibv_qp_cap cap, bool shares_receives) {
    cap.max_send_wr = limits::granted_entries(cap.max_send_wr);
    cap.max_send_sge = std::max(cap.max_send_sge, 1U);
    cap.max_inline_data = std::max(cap.max_inline_data, least_inline_bytes);
    if (!shares_receives) {
        cap.max_recv_wr = limits::granted_entries(cap.max_recv_wr);
        cap.max_recv_sge = std::max(cap.max_recv_sge, 1U);
    }
    return cap;
}

}  // namespace

AnyQueuePair::AnyQueuePair(ibv_pd &domain, const ibv_qp_init_attr &attributes, std::uint32_t number,
                           XrcHandle *xrcd, const AnyQueuePair *original)
    : ibv_qp_ex{},
      send_queue_cq_{*CompletionQueue::of(attributes.send_cq)},
      receive_queue_cq_{*CompletionQueue::of(attributes.recv_cq)},
      cap_{attributes.cap},
      signal_all_{attributes.sq_sig_all != 0},
      xrcd_{xrcd},
      creation_{next_creation()} {
    qp_base.qp_num = original != nullptr ? original->qp_base.qp_num : numbered(*this, number);
    qp_base.handle = qp_base.qp_num;
    qp_base.context = xrcd != nullptr ? xrcd->context : domain.context;
    qp_base.qp_context = attributes.qp_context;
    qp_base.pd = &domain;
    qp_base.send_cq = attributes.send_cq;
    qp_base.recv_cq = attributes.recv_cq;
    qp_base.srq = attributes.srq;
    qp_base.qp_type = attributes.qp_type;
    qp_base.state = IBV_QPS_INIT;  // where rdma_create_qp brings it
    pthread_mutex_init(&qp_base.mutex, nullptr);
    pthread_cond_init(&qp_base.cond, nullptr);
    static_cast<ProtectionDomain &>(domain).users.fetch_add(1, std::memory_order_relaxed);
    send_queue_cq_.users.fetch_add(1, std::memory_order_relaxed);
    receive_queue_cq_.users.fetch_add(1, std::memory_order_relaxed);
    if (xrcd_ != nullptr) {
        xrcd_->users.fetch_add(1, std::memory_order_relaxed);
    }
}

void AnyQueuePair::destroy(AnyQueuePair *queue_pair) {
    if (!queue_pair->inherited()) {
        if (!queue_pair->close()) {
            return;
        }
        queue_pair->leave();
    }
    delete queue_pair;
}

AnyQueuePair::~AnyQueuePair() {
    forget_number();
    static_cast<ProtectionDomain *>(qp_base.pd)->users.fetch_sub(1, std::memory_order_release);
    send_queue_cq_.users.fetch_sub(1, std::memory_order_release);
    receive_queue_cq_.users.fetch_sub(1, std::memory_order_release);
    pthread_cond_destroy(&qp_base.cond);
    pthread_mutex_destroy(&qp_base.mutex);
    if (xrcd_ != nullptr) {
        xrcd_->users.fetch_sub(1, std::memory_order_release);  // last: the handle may be closed at once
    }
}

AnyQueuePair::Hold AnyQueuePair::find(std::uint32_t number) {
    const base::Lock lock{numbers_lock};
    const auto known = numbers().find(number);
    return known != numbers().end() && known->second.complete ? Hold{*known->second.queue_pair} : Hold{};
}

AnyQueuePair::Hold::Hold(AnyQueuePair &queue_pair) : queue_pair_{&queue_pair} {
    queue_pair.holds_.fetch_add(1, std::memory_order_relaxed);  // the table's lock orders it before the wait
}

AnyQueuePair::Hold::~Hold() {
    if (queue_pair_ != nullptr) {
        // Release makes the use of the queue pair come before its end, which may follow at once.
        queue_pair_->holds_.fetch_sub(1, std::memory_order_release);
        holds_ended.fetch_add(1, std::memory_order_release);
        holds_ended.notify_all();
    }
}

void AnyQueuePair::show_number() {
    const base::Lock lock{numbers_lock};
    numbers().find(qp_base.qp_num)->second.complete = true;  // no other queue pair can have this number
}

int AnyQueuePair::query(ibv_qp_attr &attributes, ibv_qp_init_attr &init) const {
    if (inherited()) {
        return EINVAL;
    }
    attributes = {};
    attributes.path_mtu = IBV_MTU_4096;
    attributes.cap = cap_;
    attributes.port_num = 1;
    query_state(attributes);
    init = {};
    init.qp_context = qp_base.qp_context;
    if (qp_base.qp_type != IBV_QPT_XRC_RECV) {
        init.send_cq = qp_base.send_cq;
        init.recv_cq = is_xrc(qp_base.qp_type) ? nullptr : qp_base.recv_cq;
    }
    init.srq = qp_base.srq;
    init.cap = cap_;
    init.qp_type = qp_base.qp_type;
    init.sq_sig_all = signal_all_ ? 1 : 0;
    return 0;
}

void AnyQueuePair::forget_number() {
    {
        // A datagram queue pair's socket is closed already, so another queue pair may have the number.
        const base::Lock lock{numbers_lock};
        const auto known = numbers().find(qp_base.qp_num);
        if (known != numbers().end() && known->second.queue_pair == this) {
            numbers().erase(known);
        }
    }
    while (!inherited()) {  // a hold that a child inherited never ends
        const unsigned ended = holds_ended.load(std::memory_order_acquire);
        if (holds_.load(std::memory_order_acquire) == 0) {
            break;
        }
        holds_ended.wait(ended, std::memory_order_acquire);
    }
}

void AnyQueuePair::forget_completions() {
    send_queue_cq_.forget(*this);
    receive_queue_cq_.forget(*this);
}

base::Result<ibv_qp_cap> granted_sizes(const ibv_qp_init_attr &attributes) {
    const auto is_usable = [](ibv_cq *cq) { return cq != nullptr && !CompletionQueue::of(cq)->inherited(); };
    const auto *const shared = static_cast<const SharedReceiveQueue *>(attributes.srq);
    if (!is_usable(attributes.send_cq) || !is_usable(attributes.recv_cq) ||
        (shared != nullptr && shared->inherited())) {
        return base::failure(EINVAL);
    }
    if (shared != nullptr && shared->number() != 0) {
        BASE_LOG(Error,
                 "no queue pair of type %d with shared receive queue %u: that one is of XRC; expected one of "
                 "ibv_create_srq",
                 attributes.qp_type, shared->number());
        return base::failure(EINVAL);
    }
    ibv_qp_cap cap = attributes.cap;
    const bool has_no_receives = attributes.srq != nullptr || is_xrc(attributes.qp_type);
    if (has_no_receives) {
        cap.max_recv_wr = cap.max_recv_sge = 0;  // those of the shared queue
    }
    if (exceeds(cap)) {
        BASE_LOG(
            Error,
            "queue pair of %u+%u requests, %u+%u scatter entries, %u inline bytes: the most is %d, %d and %d",
            attributes.cap.max_send_wr, attributes.cap.max_recv_wr, attributes.cap.max_send_sge,
            attributes.cap.max_recv_sge, attributes.cap.max_inline_data, limits::max_qp_wr, limits::max_sge,
            limits::max_inline_data);
        return base::failure(EINVAL);
    }
    return given(cap, has_no_receives);
}

}  // namespace soft
