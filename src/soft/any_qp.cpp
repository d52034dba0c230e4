// SPDX-License-Identifier: BSD-3-Clause
// soft/any_qp: see the header.
#include "soft/any_qp.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <unordered_map>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "soft/memory.hpp"
#include "soft/qp.hpp"
#include "soft/ud_qp.hpp"
#include "soft/wire/rdmap.hpp"

namespace soft {

namespace {

constexpr std::uint32_t first_number = 2;  // 0 and 1 are special on InfiniBand
constexpr std::uint32_t last_number = first_datagram_number - 1;

constinit base::LastingMutex numbers_lock;  // taken before a queue pair's group

const base::HeldWhileForking<numbers_lock> numbers_survive_forks;

// A number is taken from the beginning, but what is still being made is not found by it.
struct Numbered {
    AnyQueuePair *queue_pair;
    bool complete = false;
};
using Numbers = std::unordered_map<std::uint32_t, Numbered>;
Numbers &numbers() REQUIRES(numbers_lock) {
    static auto &all = *new Numbers;  // never destroyed: queue pairs may be, while the process ends
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
        next = next == last_number ? first_number : next + 1;
        if (numbers().emplace(number, Numbered{&queue_pair}).second) {
            return number;
        }
    }
}

std::uint64_t next_creation() {
    static std::atomic<std::uint64_t> created{0};
    return created.fetch_add(1, std::memory_order_relaxed) + 1;
}

constexpr std::uint64_t reliable_operations =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE;

constexpr std::uint64_t datagram_operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

// IBV_QP_EX_WITH_ bits of what a type of queue pair can be asked for.
std::uint64_t operations_of(ibv_qp_type type) {
    return type == IBV_QPT_RC ? reliable_operations : type == IBV_QPT_UD ? datagram_operations : 0;
}

base::Result<AnyQueuePair *> create(ibv_pd &domain, ibv_qp_init_attr &attributes) {
    switch (attributes.qp_type) {
        case IBV_QPT_RC:
            return QueuePair::create(domain, attributes);
        case IBV_QPT_UD:
            return DatagramQueuePair::create(domain, attributes);
        default:
            BASE_LOG(Error, "this device has queue pairs of type RC and UD; type %d was asked for",
                     attributes.qp_type);
            return base::failure(EOPNOTSUPP);
    }
}

}  // namespace

AnyQueuePair::AnyQueuePair(ibv_pd &domain, const ibv_qp_init_attr &attributes, std::uint32_t number)
    : ibv_qp_ex{},
      send_queue_cq_{*CompletionQueue::of(attributes.send_cq)},
      receive_queue_cq_{*CompletionQueue::of(attributes.recv_cq)},
      cap_{attributes.cap},
      signal_all_{attributes.sq_sig_all != 0},
      creation_{next_creation()} {
    qp_base.qp_num = numbered(*this, number);
    qp_base.handle = qp_base.qp_num;
    qp_base.context = domain.context;
    qp_base.qp_context = attributes.qp_context;
    qp_base.pd = &domain;
    qp_base.send_cq = attributes.send_cq;
    qp_base.recv_cq = attributes.recv_cq;
    qp_base.srq = attributes.srq;
    qp_base.qp_type = attributes.qp_type;
    qp_base.state = IBV_QPS_INIT;
    pthread_mutex_init(&qp_base.mutex, nullptr);
    pthread_cond_init(&qp_base.cond, nullptr);
    static_cast<ProtectionDomain &>(domain).users.fetch_add(1, std::memory_order_relaxed);
    send_queue_cq_.users.fetch_add(1, std::memory_order_relaxed);
    receive_queue_cq_.users.fetch_add(1, std::memory_order_relaxed);
}

void AnyQueuePair::destroy(AnyQueuePair *queue_pair) {
    if (!queue_pair->inherited()) {
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
}

AnyQueuePair::Found AnyQueuePair::find(std::uint32_t number) {
    std::unique_lock lock{numbers_lock};  // goes with what is found
    numbers_lock.assert_held();
    const auto known = numbers().find(number);
    if (known == numbers().end() || !known->second.complete) {
        return {};
    }
    return {.queue_pair = known->second.queue_pair, .hold = std::move(lock)};
}

void AnyQueuePair::show_number() {
    const base::Lock lock{numbers_lock};
    numbers().find(qp_base.qp_num)->second.complete = true;  // its own: nobody takes it over
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
    init.send_cq = qp_base.send_cq;
    init.recv_cq = qp_base.recv_cq;
    init.srq = qp_base.srq;
    init.cap = cap_;
    init.qp_type = qp_base.qp_type;
    init.sq_sig_all = signal_all_ ? 1 : 0;
    return 0;
}

void AnyQueuePair::forget_number() {
    // A datagram queue pair's socket is closed already: the number may be another's by now.
    const base::Lock lock{numbers_lock};
    const auto known = numbers().find(qp_base.qp_num);
    if (known != numbers().end() && known->second.queue_pair == this) {
        numbers().erase(known);
    }
}

void AnyQueuePair::forget_completions() {
    send_queue_cq_.forget(*this);
    receive_queue_cq_.forget(*this);
}

base::Result<AnyQueuePair *> create_queue_pair(ibv_pd &domain, ibv_qp_init_attr &attributes,
                                               std::uint64_t send_operations) {
    if (const std::uint64_t lacking = send_operations & ~operations_of(attributes.qp_type)) {
        BASE_LOG(Error, "queue pair of type %d: send operations 0x%llx are not there", attributes.qp_type,
                 static_cast<unsigned long long>(lacking));
        return base::failure(EOPNOTSUPP);
    }
    if ((send_operations & IBV_QP_EX_WITH_ATOMIC_WRITE) != 0) {
        // Its eight bytes are copied when it is posted.
        attributes.cap.max_inline_data =
            std::max(attributes.cap.max_inline_data, static_cast<std::uint32_t>(wire::atomic_write_bytes));
    }
    const auto made = create(domain, attributes);
    if (made && send_operations != 0) {
        try {
            (*made)->prepare_requests(attributes.cap);
        } catch (const std::bad_alloc &) {
            AnyQueuePair::destroy(*made);
            throw;
        }
    }
    if (made) {
        (*made)->show_number();
    }
    return made;
}

base::Result<std::uint64_t> send_operations_of(const ibv_qp_init_attr_ex &attributes) {
    constexpr std::uint32_t known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const auto has = [&](std::uint32_t part) { return (attributes.comp_mask & part) != 0; };
    if (!has(IBV_QP_INIT_ATTR_PD) || has(~known) ||
        (has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attributes.create_flags != 0)) {
        BASE_LOG(Error, "queue pair with comp_mask 0x%x: 0x%x can be there, a pd must, and no create_flags",
                 attributes.comp_mask, known);
        return base::failure(EOPNOTSUPP);
    }
    return has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) ? attributes.send_ops_flags : 0;
}

}  // namespace soft
