// SPDX-License-Identifier: BSD-3-Clause
#include "soft/connected/opened_queue_pair.hpp"

#include <cerrno>
#include <new>

#include "base/log.hpp"

namespace soft {

namespace {

ibv_qp_init_attr attributes_of(XrcHandle &xrcd, void *qp_context) {
    ibv_qp_init_attr attributes{};
    attributes.qp_context = qp_context;
    attributes.send_cq = attributes.recv_cq = ibv_cq_ex_to_cq(&xrcd.domain().no_completions());
    attributes.qp_type = IBV_QPT_XRC_RECV;
    return attributes;
}

// Returns null when the domain has no such queue pair.
QueuePair *open_again(const XrcHandle &xrcd, std::uint32_t number) {
    const auto held = AnyQueuePair::find(number);
    if (held.get() == nullptr || held.get()->qp_base.qp_type != IBV_QPT_XRC_RECV) {
        return nullptr;
    }
    auto &target = static_cast<QueuePair &>(*held.get());
    const bool is_open =
        &target.xrcd()->domain() == &xrcd.domain() && !target.inherited() && target.open_again();
    return is_open ? &target : nullptr;
}

}  // namespace

base::Result<OpenedQueuePair *> OpenedQueuePair::open(XrcHandle &xrcd, std::uint32_t number,
                                                      void *qp_context) {
    QueuePair *const target = open_again(xrcd, number);
    if (target == nullptr) {
        BASE_LOG(
            Error,
            "queue pair 0x%06x is none of type XRC_RECV in this XRC domain; one of another process cannot "
            "be opened",
            number);
        return base::failure(EINVAL);
    }
    try {
        return new OpenedQueuePair{xrcd, *target, attributes_of(xrcd, qp_context)};
    } catch (const std::bad_alloc &) {
        destroy(target);
        throw;
    }
}

OpenedQueuePair::OpenedQueuePair(XrcHandle &xrcd, QueuePair &target, const ibv_qp_init_attr &attributes)
    : AnyQueuePair{xrcd.domain().protection_domain(), attributes, 0, &xrcd, &target}, target_{target} {}

// Nothing is posted to a queue pair of type XRC_RECV: its receives are those of shared queues.
int OpenedQueuePair::post_sends(ibv_send_wr *request, ibv_send_wr **bad, ChainPart) {
    *bad = request;
    return EINVAL;
}

int OpenedQueuePair::post_receives(ibv_recv_wr *request, ibv_recv_wr **bad) {
    *bad = request;
    return EINVAL;
}

}  // namespace soft
