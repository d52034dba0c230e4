// SPDX-License-Identifier: BSD-3-Clause
#include "soft/api/xrc.hpp"

#include <cerrno>

#include "base/log.hpp"
#include "soft/api/create_queue_pair.hpp"
#include "soft/api/made.hpp"
#include "soft/connected/opened_queue_pair.hpp"
#include "soft/device/device.hpp"
#include "soft/queues/shared_receive.hpp"
#include "soft/queues/xrc_domain.hpp"

namespace soft {

namespace {

// The queue pairs of a domain may outlive the context that made it.
base::Result<std::shared_ptr<XrcDomain>> domain_for(const ibv_context &context,
                                                    const ibv_xrcd_init_attr &wanted) {
    const auto kept = context_of(*static_cast<Device *>(context.device));
    if (!kept) {
        return std::unexpected{kept.error()};
    }
    return wanted.fd == -1 ? XrcDomain::create(**kept) : XrcDomain::of_file(**kept, wanted.fd, wanted.oflags);
}

bool is_open_in(const ibv_xrcd *xrcd, const ibv_context &context) {
    return xrcd != nullptr && xrcd->context == &context;
}

}  // namespace

ibv_xrcd *open_xrcd(ibv_context *context, ibv_xrcd_init_attr *attributes) {
    constexpr std::uint32_t both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (attributes->comp_mask != both) {
        BASE_LOG(Error, "no XRC domain: comp_mask is 0x%x, expected 0x%x: a descriptor, or -1, and flags",
                 attributes->comp_mask, both);
        return failed<ibv_xrcd>(EINVAL);
    }
    return made([&]() -> ibv_xrcd * {
        auto domain = domain_for(*context, *attributes);
        if (!domain) {
            return failed<ibv_xrcd>(domain.error().number);
        }
        auto *const handle = new XrcHandle{*context, *std::move(domain)};
        Context::of(*context).uses.fetch_add(1, std::memory_order_relaxed);
        return handle;
    });
}

int close_xrcd(ibv_xrcd *xrcd) {
    auto *const handle = static_cast<XrcHandle *>(xrcd);
    if (handle->users.load(std::memory_order_acquire) != 0) {
        return EBUSY;
    }
    Context::of(*xrcd->context).uses.fetch_sub(1, std::memory_order_release);
    delete handle;
    return 0;
}

ibv_qp *open_qp(ibv_context *context, ibv_qp_open_attr *attributes) {
    constexpr std::uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    const std::uint32_t set = attributes->comp_mask;
    if ((set & needed) != needed || (set & ~(needed | IBV_QP_OPEN_ATTR_CONTEXT)) != 0 ||
        attributes->qp_type != IBV_QPT_XRC_RECV || !is_open_in(attributes->xrcd, *context)) {
        BASE_LOG(Error,
                 "no queue pair is opened: comp_mask 0x%x, type %d: expected a number, an XRC domain of this "
                 "context, and the type XRC_RECV",
                 set, attributes->qp_type);
        return failed<ibv_qp>(EINVAL);
    }
    return made([&]() -> ibv_qp * {
        auto *const opened = value_of(
            OpenedQueuePair::open(*static_cast<XrcHandle *>(attributes->xrcd), attributes->qp_num,
                                  (set & IBV_QP_OPEN_ATTR_CONTEXT) != 0 ? attributes->qp_context : nullptr));
        return opened != nullptr ? &opened->qp_base : nullptr;
    });
}

int get_srq_num(ibv_srq *srq, std::uint32_t *number) {
    *number = static_cast<SharedReceiveQueue *>(srq)->number();
    return *number != 0 ? 0 : EINVAL;
}

ibv_srq *create_xrc_srq(ibv_context &context, ibv_srq_init_attr_ex &attributes) {
    constexpr std::uint32_t needed =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    const auto usable = [&](const auto *object) { return object != nullptr && object->context == &context; };
    if (attributes.comp_mask != needed || !usable(attributes.pd) || !usable(attributes.xrcd) ||
        !usable(attributes.cq) || CompletionQueue::of(attributes.cq)->inherited() ||
        static_cast<const XrcHandle *>(attributes.xrcd)->domain().inherited()) {
        BASE_LOG(
            Error,
            "no shared receive queue of XRC: comp_mask is 0x%x, expected 0x%x: a protection domain, an XRC "
            "domain and a completion queue, all of this context, and not of a parent process",
            attributes.comp_mask, needed);
        return failed<ibv_srq>(EINVAL);
    }
    // The members up to attr are those of ibv_srq_init_attr.
    return made([&]() -> ibv_srq * {
        return value_of(SharedReceiveQueue::create(
            *attributes.pd, reinterpret_cast<ibv_srq_init_attr &>(attributes),
            *static_cast<XrcHandle *>(attributes.xrcd), *CompletionQueue::of(attributes.cq)));
    });
}

ibv_qp *create_xrc_receiver(ibv_context &context, ibv_qp_init_attr_ex &attributes) {
    if (attributes.comp_mask != IBV_QP_INIT_ATTR_XRCD || !is_open_in(attributes.xrcd, context)) {
        BASE_LOG(
            Error,
            "no queue pair of type XRC_RECV: comp_mask is 0x%x, expected 0x%x: an XRC domain of this context",
            attributes.comp_mask, static_cast<unsigned>(IBV_QP_INIT_ATTR_XRCD));
        return failed<ibv_qp>(EINVAL);
    }
    auto &handle = *static_cast<XrcHandle *>(attributes.xrcd);
    ibv_qp_init_attr inner{};
    inner.qp_context = attributes.qp_context;
    inner.send_cq = inner.recv_cq = ibv_cq_ex_to_cq(&handle.domain().no_completions());
    inner.qp_type = IBV_QPT_XRC_RECV;
    return made([&]() -> ibv_qp * {
        auto *const queue_pair = value_of(
            create_queue_pair(handle.domain().protection_domain(), inner, 0, ConnectedBy::Program, &handle));
        return queue_pair != nullptr ? &queue_pair->qp_base : nullptr;
    });
}

}  // namespace soft
