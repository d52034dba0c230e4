// SPDX-License-Identifier: BSD-3-Clause
// soft/queue_api: softrdma_ibv_X, the C face of completion, queue pairs, shared receive queues and
// asynchronous events.
#include <cerrno>

#include "base/log.hpp"
#include "soft/cq.hpp"
#include "soft/device.hpp"
#include "soft/limits.hpp"
#include "soft/made.hpp"
#include "soft/qp.hpp"
#include "soft/shared_receive.hpp"
#include "softrdma.h"

namespace {

using soft::CompletionChannel;
using soft::CompletionQueue;
using soft::failed;
using soft::made;
using soft::QueuePair;
using soft::SharedReceiveQueue;
using soft::value_of;

}  // namespace

// ---- completion ----

ibv_comp_channel *softrdma_ibv_create_comp_channel(ibv_context *context) {
    return made([&]() -> ibv_comp_channel * { return value_of(CompletionChannel::create(context)); });
}

int softrdma_ibv_destroy_comp_channel(ibv_comp_channel *channel) {
    auto *const events = static_cast<CompletionChannel *>(channel);
    if (events->busy()) {
        return EBUSY;
    }
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
    return made(
        [&]() -> ibv_cq * { return value_of(CompletionQueue::create(context, cqe, cq_context, channel)); });
}

int softrdma_ibv_destroy_cq(ibv_cq *cq) {
    auto *const queue = static_cast<CompletionQueue *>(cq);
    if (queue->users.load(std::memory_order_acquire) != 0) {
        return EBUSY;
    }
    queue->leave_channel();
    delete queue;
    return 0;
}

int softrdma_ibv_get_cq_event(ibv_comp_channel *channel, ibv_cq **cq, void **cq_context) {
    CompletionQueue *const queue =
        made([&] { return value_of(static_cast<CompletionChannel *>(channel)->next_event()); });
    if (queue == nullptr) {
        return -1;
    }
    *cq = queue;
    *cq_context = queue->cq_context;
    return 0;
}

void softrdma_ibv_ack_cq_events(ibv_cq *cq, unsigned nevents) {
    static_cast<CompletionQueue *>(cq)->acknowledge(nevents);
}

// ---- queue pairs ----

ibv_qp *softrdma_ibv_create_qp(ibv_pd *pd, ibv_qp_init_attr *attributes) {
    return made([&]() -> ibv_qp * { return value_of(QueuePair::create(*pd, *attributes)); });
}

ibv_qp *softrdma_ibv_create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attributes) {
    if ((attributes->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attributes->pd == nullptr ||
        attributes->pd->context != context ||
        (attributes->comp_mask & ~static_cast<std::uint32_t>(IBV_QP_INIT_ATTR_PD)) != 0) {
        return failed<ibv_qp>(EOPNOTSUPP);
    }
    // The members up to sq_sig_all are those of ibv_qp_init_attr.
    return softrdma_ibv_create_qp(attributes->pd, reinterpret_cast<ibv_qp_init_attr *>(attributes));
}

int softrdma_ibv_destroy_qp(ibv_qp *qp) {
    delete static_cast<QueuePair *>(qp);
    return 0;
}

int softrdma_ibv_query_qp(ibv_qp *qp, ibv_qp_attr *attributes, int, ibv_qp_init_attr *init) {
    static_cast<QueuePair *>(qp)->query(*attributes, *init);
    return 0;
}

// A queue pair's states are the connection manager's to change; a program may give it up.
int softrdma_ibv_modify_qp(ibv_qp *qp, ibv_qp_attr *attributes, int mask) {
    if (mask != IBV_QP_STATE || attributes->qp_state != IBV_QPS_ERR) {
        return EOPNOTSUPP;
    }
    static_cast<QueuePair *>(qp)->disconnect();
    return 0;
}

unsigned softrdma_peer_operations(const ibv_qp *qp) {
    return static_cast<const QueuePair *>(qp)->peer_operations();
}

// ---- shared receive queues ----

ibv_srq *softrdma_ibv_create_srq(ibv_pd *pd, ibv_srq_init_attr *attributes) {
    return made([&]() -> ibv_srq * { return value_of(SharedReceiveQueue::create(*pd, *attributes)); });
}

int softrdma_ibv_modify_srq(ibv_srq *srq, ibv_srq_attr *attributes, int mask) {
    return static_cast<SharedReceiveQueue *>(srq)->modify(*attributes, mask);
}

int softrdma_ibv_query_srq(ibv_srq *srq, ibv_srq_attr *attributes) {
    static_cast<SharedReceiveQueue *>(srq)->query(*attributes);
    return 0;
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
    const auto next = soft::async_events_of(*context).next();
    if (!next) {
        errno = next.error().number;
        return -1;
    }
    *event = *next;
    return 0;
}

void softrdma_ibv_ack_async_event(ibv_async_event *event) {
    const ibv_context *const context = event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED
                                           ? event->element.qp->context
                                           : event->element.srq->context;
    soft::async_events_of(*context).acknowledge(*event);
}
