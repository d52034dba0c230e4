// SPDX-License-Identifier: BSD-3-Clause
#include "soft/api/create_queue_pair.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

#include "base/log.hpp"
#include "soft/api/made.hpp"
#include "soft/api/xrc.hpp"
#include "soft/cm/by_number.hpp"
#include "soft/connected/queue_pair.hpp"
#include "soft/datagram/queue_pair.hpp"
#include "soft/ground/environment.hpp"
#include "soft/queues/work_requests.hpp"
#include "soft/wire/rdmap.hpp"

namespace soft {

namespace {

constexpr std::uint64_t reliable_operations =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE |
    IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;

constexpr std::uint64_t unreliable_operations =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;

constexpr std::uint64_t datagram_operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

// Returns the IBV_QP_EX_WITH_ bits that a program may ask for with a type of queue pair.
std::uint64_t operations_of(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_RC:
        case IBV_QPT_XRC_SEND:
            return reliable_operations;
        case IBV_QPT_UC:
            return unreliable_operations;
        case IBV_QPT_UD:
            return datagram_operations;
        default:
            return 0;
    }
}

base::Result<QueuePair *> create_connected(ibv_pd &domain, ibv_qp_init_attr &attributes, ConnectedBy who,
                                           XrcHandle *xrcd) {
    if (who == ConnectedBy::ItsId) {
        return QueuePair::create(domain, attributes);
    }
    auto number = QueuePairNumber::take();
    if (!number) {
        return std::unexpected{number.error()};
    }
    const auto made = QueuePair::create(domain, attributes, number->value(), xrcd);
    if (made) {
        try {
            (*made)->connect_by(std::make_unique<ByNumber>(**made, *std::move(number)));
        } catch (const std::bad_alloc &) {
            AnyQueuePair::destroy(*made);
            throw;
        }
    }
    return made;
}

base::Result<QueuePair *> create_xrc(ibv_pd &domain, ibv_qp_init_attr &attributes, ConnectedBy who,
                                     XrcHandle *xrcd) {
    if (who == ConnectedBy::ItsId) {
        BASE_LOG(Error, "no queue pair of XRC: an id connects none, only ibv_modify_qp does");
        return base::failure(EOPNOTSUPP);
    }
    if ((attributes.qp_type == IBV_QPT_XRC_RECV) != (xrcd != nullptr) || attributes.srq != nullptr) {
        BASE_LOG(Error,
                 "no queue pair of XRC: one of type XRC_RECV has an XRC domain (ibv_create_qp_ex), one of "
                 "type XRC_SEND has none, and neither has a shared receive queue");
        return base::failure(EINVAL);
    }
    ibv_qp_init_attr whole = attributes;
    whole.recv_cq = whole.send_cq;  // it receives nothing, or what completes elsewhere
    auto made = create_connected(domain, whole, who, xrcd);
    attributes.cap = whole.cap;
    return made;
}

base::Result<AnyQueuePair *> create(ibv_pd &domain, ibv_qp_init_attr &attributes, ConnectedBy who,
                                    XrcHandle *xrcd) {
    switch (attributes.qp_type) {
        case IBV_QPT_RC:
        case IBV_QPT_UC:
            return create_connected(domain, attributes, who, nullptr);
        case IBV_QPT_XRC_SEND:
        case IBV_QPT_XRC_RECV:
            return create_xrc(domain, attributes, who, xrcd);
        case IBV_QPT_UD:
            if (tls_is_required()) {
                BASE_LOG(Error,
                         "no queue pair of type UD: RPMA_TLS asks for TLS, which datagrams do not have");
                return base::failure(EOPNOTSUPP);
            }
            return DatagramQueuePair::create(domain, attributes);
        default:
            BASE_LOG(Error, "this device has queue pairs of type RC, UC, UD and XRC; type %d was asked for",
                     attributes.qp_type);
            return base::failure(EOPNOTSUPP);
    }
}

}  // namespace

base::Result<AnyQueuePair *> create_queue_pair(ibv_pd &domain, ibv_qp_init_attr &attributes,
                                               std::uint64_t send_operations, ConnectedBy who,
                                               XrcHandle *xrcd) {
    if (const std::uint64_t lacking = send_operations & ~operations_of(attributes.qp_type)) {
        BASE_LOG(Error, "queue pair of type %d: send operations 0x%llx are not there", attributes.qp_type,
                 static_cast<unsigned long long>(lacking));
        return base::failure(EOPNOTSUPP);
    }
    if ((send_operations & IBV_QP_EX_WITH_ATOMIC_WRITE) != 0) {
        // The eight bytes of an atomic write are copied when it is posted.
        attributes.cap.max_inline_data =
            std::max(attributes.cap.max_inline_data, static_cast<std::uint32_t>(wire::atomic_write_bytes));
    }
    const auto made = create(domain, attributes, who, xrcd);
    if (made && send_operations != 0) {
        try {
            (*made)->prepare_requests_by(std::make_shared<WorkRequests>(**made, attributes.cap));
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

ibv_qp *create_queue_pair(ibv_context &context, ibv_qp_init_attr_ex &attributes, ConnectedBy who) {
    if (attributes.qp_type == IBV_QPT_XRC_RECV && who == ConnectedBy::Program) {
        return create_xrc_receiver(context, attributes);
    }
    const auto operations = send_operations_of(attributes);
    if (!operations) {
        return failed<ibv_qp>(operations.error().number);
    }
    if (attributes.pd == nullptr || attributes.pd->context != &context) {
        return failed<ibv_qp>(EINVAL);
    }
    // The members up to sq_sig_all are those of ibv_qp_init_attr.
    return made([&]() -> ibv_qp * {
        auto *const queue_pair = value_of(create_queue_pair(
            *attributes.pd, reinterpret_cast<ibv_qp_init_attr &>(attributes), *operations, who));
        return queue_pair != nullptr ? &queue_pair->qp_base : nullptr;
    });
}

}  // namespace soft
