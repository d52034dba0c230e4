// SPDX-License-Identifier: BSD-3-Clause
// soft/api/queues: softrdma_ibv_X, the C functions of completion, queue pairs, shared receive queues and
// asynchronous events.
#include <cerrno>

#include "base/log.hpp"
#include "soft/api/create_queue_pair.hpp"
#include "soft/api/made.hpp"
#include "soft/api/xrc.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/limits.hpp"
#include "soft/queues/any_queue_pair.hpp"
#include "soft/queues/completion_queue.hpp"
#include "soft/queues/shared_receive.hpp"
#include "softrdma.h"

namespace {

using soft::AnyQueuePair;
using soft::CompletionChannel;
using soft::CompletionQueue;
using soft::error_of;
using soft::failed;
using soft::made;
using soft::SharedReceiveQueue;
using soft::value_of;

}  // namespace

// ---- completion ----

ibv_comp_channel *softrdma_ibv_create_comp_channel(ibv_context *context) {
    return made([&]() -> ibv_comp_channel * {
        CompletionChannel *const channel = value_of(CompletionChannel::create(context));
        if (channel != nullptr) {
            soft::Context::of(*context).uses.fetch_add(1, std::memory_order_relaxed);
        }
        return channel;
    });
}

int softrdma_ibv_destroy_comp_channel(ibv_comp_channel *channel) {
    auto *const events = static_cast<CompletionChannel *>(channel);
    if (events->busy()) {
        return EBUSY;
    }
    soft::Context::of(*channel->context).uses.fetch_sub(1, std::memory_order_release);
    delete events;
    return 0;
}

ibv_cq *softrdma_ibv_create_cq(ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel,
                               int comp_vector) {
    if (cqe < 1 || cqe > soft::limits::max_cqe || comp_vector < 0 ||
        comp_vector >= context->num_comp_vectors) {
        BASE_LOG(Error,
                 "completion queue of %d entries on vector %d: 1 to %d entries and vector 0 are possible",
                 cqe, comp_vector, soft::limits::max_cqe);
        return failed<ibv_cq>(EINVAL);
    }
    return made([&]() -> ibv_cq * {
        auto *const queue = value_of(CompletionQueue::create(context, cqe, cq_context, channel));
        if (queue == nullptr) {
            return nullptr;
        }
        soft::Context::of(*context).uses.fetch_add(1, std::memory_order_relaxed);
        return ibv_cq_ex_to_cq(queue);
    });
}

ibv_cq_ex *softrdma_ibv_create_cq_ex(ibv_context *context, ibv_cq_init_attr_ex *cq_attr) {
    constexpr std::uint64_t parts = std::uint64_t{IBV_WC_STANDARD_FLAGS} | soft::wc_stamps;
    const bool flags = (cq_attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
    if ((cq_attr->comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0 ||
        (cq_attr->wc_flags & ~parts) != 0 ||
        (flags && (cq_attr->flags & ~std::uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) != 0)) {
        return failed<ibv_cq_ex>(EOPNOTSUPP);
    }
    ibv_cq *const made = softrdma_ibv_create_cq(context, static_cast<int>(cq_attr->cqe), cq_attr->cq_context,
                                                cq_attr->channel, static_cast<int>(cq_attr->comp_vector));
    if (made == nullptr) {
        return nullptr;
    }
    try {
        CompletionQueue::of(made)->extend(cq_attr->wc_flags);
    } catch (const std::bad_alloc &) {
        softrdma_ibv_destroy_cq(made);
        return failed<ibv_cq_ex>(ENOMEM);
    }
    return CompletionQueue::of(made);
}

int softrdma_ibv_resize_cq(ibv_cq *cq, int cqe) {
    if (cqe < 1 || cqe > soft::limits::max_cqe) {
        return EINVAL;
    }
    return error_of([&] { return CompletionQueue::of(cq)->resize(cqe); });
}

int softrdma_ibv_destroy_cq(ibv_cq *cq) {
    auto *const queue = CompletionQueue::of(cq);
    if (queue->users.load(std::memory_order_acquire) != 0) {
        return EBUSY;
    }
    queue->leave_channel();
    soft::async_events_of(*cq->context).forget(cq);
    soft::Context::of(*cq->context).uses.fetch_sub(1, std::memory_order_release);
    delete queue;
    return 0;
}

int softrdma_ibv_get_cq_event(ibv_comp_channel *channel, ibv_cq **cq, void **cq_context) {
    CompletionQueue *const queue =
        made([&] { return value_of(static_cast<CompletionChannel *>(channel)->next_event()); });
    if (queue == nullptr) {
        return -1;
    }
    *cq = ibv_cq_ex_to_cq(queue);
    *cq_context = queue->cq_context;
    return 0;
}

int softrdma_cq_wait_begin(ibv_cq *cq, int *fd) {
    return error_of([&] {
        const auto begun = CompletionQueue::of(cq)->begin_wait();
        if (begun) {
            *fd = *begun;
        }
        return begun ? 0 : begun.error().number;
    });
}

int softrdma_cq_wait_end(ibv_cq *cq) {
    const auto ended = CompletionQueue::of(cq)->end_wait();
    return ended ? 0 : ended.error().number;
}

void softrdma_ibv_ack_cq_events(ibv_cq *cq, unsigned nevents) {
    CompletionQueue::of(cq)->acknowledge(nevents);
}

// ---- queue pairs ----

ibv_qp *softrdma_ibv_create_qp(ibv_pd *pd, ibv_qp_init_attr *attributes) {
    return made([&]() -> ibv_qp * {
        auto *const queue_pair =
            value_of(soft::create_queue_pair(*pd, *attributes, 0, soft::ConnectedBy::Program));
        return queue_pair != nullptr ? &queue_pair->qp_base : nullptr;
    });
}

ibv_qp *softrdma_ibv_create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attributes) {
    return soft::create_queue_pair(*context, *attributes, soft::ConnectedBy::Program);
}

ibv_qp_ex *softrdma_ibv_qp_to_qp_ex(ibv_qp *qp) {
    AnyQueuePair *const queue_pair = AnyQueuePair::of(qp);
    return queue_pair->prepared_requests() != nullptr ? queue_pair : nullptr;
}

int softrdma_ibv_destroy_qp(ibv_qp *qp) {
    AnyQueuePair::destroy(AnyQueuePair::of(qp));
    return 0;
}

int softrdma_ibv_query_qp(ibv_qp *qp, ibv_qp_attr *attributes, int, ibv_qp_init_attr *init) {
    return AnyQueuePair::of(qp)->query(*attributes, *init);
}

int softrdma_ibv_modify_qp(ibv_qp *qp, ibv_qp_attr *attributes, int mask) {
    return error_of([&] { return AnyQueuePair::of(qp)->modify(*attributes, mask); });
}

unsigned softrdma_peer_operations(const ibv_qp *qp) {
    return AnyQueuePair::of(qp)->peer_operations();
}

const char *softrdma_link(const ibv_qp *qp) {
    return AnyQueuePair::of(qp)->link_name();
}

int softrdma_paths(const ibv_qp *qp) {
    const auto paths = AnyQueuePair::of(qp)->paths();
    return paths ? static_cast<int>(*paths) : -1;
}

int softrdma_end_error(const ibv_qp *qp) {
    return AnyQueuePair::of(qp)->end_error();
}

// ---- shared receive queues ----

ibv_srq *softrdma_ibv_create_srq(ibv_pd *pd, ibv_srq_init_attr *attributes) {
    return made([&]() -> ibv_srq * { return value_of(SharedReceiveQueue::create(*pd, *attributes)); });
}

ibv_srq *softrdma_ibv_create_srq_ex(ibv_context *context, ibv_srq_init_attr_ex *srq_init_attr_ex) {
    const auto has = [&](std::uint32_t part) { return (srq_init_attr_ex->comp_mask & part) != 0; };
    if (has(IBV_SRQ_INIT_ATTR_TYPE) && srq_init_attr_ex->srq_type == IBV_SRQT_XRC) {
        return soft::create_xrc_srq(*context, *srq_init_attr_ex);
    }
    if (has(~std::uint32_t{IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD}) ||
        (has(IBV_SRQ_INIT_ATTR_TYPE) && srq_init_attr_ex->srq_type != IBV_SRQT_BASIC)) {
        return failed<ibv_srq>(EOPNOTSUPP);
    }
    if (!has(IBV_SRQ_INIT_ATTR_PD) || srq_init_attr_ex->pd == nullptr ||
        srq_init_attr_ex->pd->context != context) {
        return failed<ibv_srq>(EINVAL);
    }
    // The members up to attr are those of ibv_srq_init_attr.
    return softrdma_ibv_create_srq(srq_init_attr_ex->pd,
                                   reinterpret_cast<ibv_srq_init_attr *>(srq_init_attr_ex));
}

int softrdma_ibv_modify_srq(ibv_srq *srq, ibv_srq_attr *attributes, int mask) {
    return static_cast<SharedReceiveQueue *>(srq)->modify(*attributes, mask);
}

int softrdma_ibv_query_srq(ibv_srq *srq, ibv_srq_attr *attributes) {
    return static_cast<SharedReceiveQueue *>(srq)->query(*attributes);
}

int softrdma_ibv_destroy_srq(ibv_srq *srq) {
    auto *const queue = static_cast<SharedReceiveQueue *>(srq);
    if (queue->users.load(std::memory_order_acquire) != 0) {
        return EBUSY;
    }
    delete queue;
    return 0;
}

// ---- asynchronous events ----

int softrdma_ibv_get_async_event(ibv_context *context, ibv_async_event *event) {
    return soft::status_of([&]() -> base::Result<void> {
        const soft::ContextUse use{*context};
        const auto next = soft::async_events_of(*context).next();
        if (!next) {
            return std::unexpected{next.error()};
        }
        *event = *next;
        return {};
    });
}

void softrdma_ibv_ack_async_event(ibv_async_event *event) {
    soft::async_events_of(soft::context_of(*event)).acknowledge(*event);
}
