// SPDX-License-Identifier: BSD-3-Clause
// soft/api/endpoint: the C functions by which an id makes its own objects: completion queues when the program
// gives none, a shared receive queue, the queue pair, and endpoints, which are all of these in one call. They
// use the other public calls, as librdmacm's do.

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "soft/api/create_queue_pair.hpp"
#include "soft/api/made.hpp"
#include "soft/cm/cm.hpp"
#include "softrdma.h"

namespace {

using soft::CmId;
using soft::status_failed;
using soft::status_of;

constexpr int resolve_timeout_ms = 2000;

// A queue or channel that the program gave is not destroyed here; its pointer in the id is null.
void destroy_completion(ibv_cq *&queue, ibv_comp_channel *&channel) {
    if (queue != nullptr) {
        (void)softrdma_ibv_destroy_cq(std::exchange(queue, nullptr));
    }
    if (channel != nullptr) {
        (void)softrdma_ibv_destroy_comp_channel(std::exchange(channel, nullptr));
    }
}

// A program may have put one queue, and one channel, in both places.
void destroy_completion(rdma_cm_id &id) {
    id.send_cq = id.send_cq == id.recv_cq ? nullptr : id.send_cq;
    id.send_cq_channel = id.send_cq_channel == id.recv_cq_channel ? nullptr : id.send_cq_channel;
    destroy_completion(id.send_cq, id.send_cq_channel);
    destroy_completion(id.recv_cq, id.recv_cq_channel);
}

// Makes a completion queue with a channel of its own. The context of both is the id.
bool make_completion(rdma_cm_id &id, std::uint32_t entries, ibv_cq *&queue, ibv_comp_channel *&channel) {
    channel = softrdma_ibv_create_comp_channel(id.verbs);
    if (channel != nullptr) {
        queue = softrdma_ibv_create_cq(id.verbs, static_cast<int>(std::max(entries, 1U)), &id, channel, 0);
    }
    return queue != nullptr;
}

// Makes the objects that the program did not give; their pointers in the attributes are null.
bool complete(rdma_cm_id &id, ibv_qp_init_attr_ex &attributes) {
    attributes.srq = attributes.srq == nullptr ? id.srq : attributes.srq;
    if (attributes.send_cq == nullptr) {
        if (id.send_cq == nullptr &&
            !make_completion(id, attributes.cap.max_send_wr, id.send_cq, id.send_cq_channel)) {
            return false;
        }
        attributes.send_cq = id.send_cq;
    }
    if (attributes.recv_cq == nullptr) {
        ibv_srq_attr shared{.max_wr = attributes.cap.max_recv_wr, .max_sge = 0, .srq_limit = 0};
        if (attributes.srq != nullptr) {
            (void)softrdma_ibv_query_srq(attributes.srq, &shared);
        }
        if (id.recv_cq == nullptr && !make_completion(id, shared.max_wr, id.recv_cq, id.recv_cq_channel)) {
            return false;
        }
        attributes.recv_cq = id.recv_cq;
    }
    return true;
}

// Destroys the objects that were made, and returns -1 with the errno of the failure.
template <typename Undo>
int undone(Undo undo) {
    const int error = errno;
    undo();
    return status_failed(error);
}

// Binds a new id that will listen, or resolves one that will connect and makes its queue pair.
int prepare(rdma_cm_id &id, const rdma_addrinfo &to, ibv_pd *pd, ibv_qp_init_attr *attributes) {
    if ((to.ai_flags & RAI_PASSIVE) != 0) {
        if (softrdma_rdma_bind_addr(&id, to.ai_src_addr) != 0) {
            return -1;
        }
        id.pd = pd != nullptr ? pd : id.pd;
        if (attributes != nullptr) {
            auto &child = static_cast<CmId &>(id).children_queue_pair.emplace(*attributes);
            child.qp_type = id.qp_type;
        }
        return 0;
    }
    if (softrdma_rdma_resolve_addr(&id, to.ai_src_addr, to.ai_dst_addr, resolve_timeout_ms) != 0 ||
        softrdma_rdma_resolve_route(&id, resolve_timeout_ms) != 0) {
        return -1;
    }
    if (attributes == nullptr) {
        return 0;
    }
    attributes->qp_type = id.qp_type;
    return softrdma_rdma_create_qp(&id, pd, attributes);
}

}  // namespace

// ---- queue pairs ----

int softrdma_rdma_create_qp_ex(rdma_cm_id *id, ibv_qp_init_attr_ex *attributes) {
    const bool other_queues =
        (id->send_cq != nullptr && attributes->send_cq != nullptr && id->send_cq != attributes->send_cq) ||
        (id->recv_cq != nullptr && attributes->recv_cq != nullptr && id->recv_cq != attributes->recv_cq);
    if (id->qp != nullptr || id->verbs == nullptr || other_queues || attributes->qp_type != id->qp_type) {
        return status_failed(EINVAL);
    }
    if ((attributes->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attributes->pd == nullptr) {
        attributes->comp_mask |= IBV_QP_INIT_ATTR_PD;
        attributes->pd = id->pd;
    }
    if (attributes->pd->context != id->verbs) {
        return status_failed(EINVAL);
    }
    // The members up to sq_sig_all are those of ibv_qp_init_attr.
    ibv_qp_init_attr given;
    std::memcpy(&given, attributes, sizeof(given));
    ibv_qp *const qp = complete(*id, *attributes)
                           ? soft::create_queue_pair(*id->verbs, *attributes, soft::ConnectedBy::ItsId)
                           : nullptr;
    if (qp == nullptr) {
        return undone([&] {
            std::memcpy(attributes, &given, sizeof(given));
            destroy_completion(*id);
        });
    }
    id->qp = qp;
    id->pd = qp->pd;
    static_cast<CmId *>(id)->queue_pair_created();
    return 0;
}

int softrdma_rdma_create_qp(rdma_cm_id *id, ibv_pd *pd, ibv_qp_init_attr *attributes) {
    ibv_qp_init_attr_ex extended{};
    std::memcpy(&extended, attributes, sizeof(*attributes));
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = pd;
    const int result = softrdma_rdma_create_qp_ex(id, &extended);
    std::memcpy(attributes, &extended, sizeof(*attributes));
    return result;
}

void softrdma_rdma_destroy_qp(rdma_cm_id *id) {
    static_cast<CmId *>(id)->destroy_queue_pair();
    destroy_completion(*id);
}

// ---- shared receive queues ----

int softrdma_rdma_create_srq_ex(rdma_cm_id *id, ibv_srq_init_attr_ex *attributes) {
    if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || id->srq != nullptr) {
        return status_failed(EINVAL);
    }
    if (attributes->srq_type != IBV_SRQT_BASIC) {
        BASE_LOG(Error, "shared receive queue of type %d: this device has IBV_SRQT_BASIC",
                 static_cast<int>(attributes->srq_type));
        return status_failed(EOPNOTSUPP);
    }
    if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attributes->pd == nullptr) {
        attributes->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        attributes->pd = id->pd;
    }
    if (attributes->pd == nullptr || attributes->pd->context != id->verbs) {
        return status_failed(EINVAL);
    }
    // The members up to attr are those of ibv_srq_init_attr.
    id->srq = softrdma_ibv_create_srq(attributes->pd, reinterpret_cast<ibv_srq_init_attr *>(attributes));
    return id->srq != nullptr ? 0 : -1;
}

int softrdma_rdma_create_srq(rdma_cm_id *id, ibv_pd *pd, ibv_srq_init_attr *attributes) {
    ibv_srq_init_attr_ex extended{};
    std::memcpy(&extended, attributes, sizeof(*attributes));
    extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    extended.srq_type = IBV_SRQT_BASIC;
    extended.pd = pd;
    const int result = softrdma_rdma_create_srq_ex(id, &extended);
    std::memcpy(attributes, &extended, sizeof(*attributes));
    return result;
}

void softrdma_rdma_destroy_srq(rdma_cm_id *id) {
    (void)softrdma_ibv_destroy_srq(std::exchange(id->srq, nullptr));
    destroy_completion(*id);
}

// ---- endpoints ----

int softrdma_rdma_create_ep(rdma_cm_id **id, rdma_addrinfo *res, ibv_pd *pd, ibv_qp_init_attr *attributes) {
    if (id == nullptr || res == nullptr) {
        return status_failed(EINVAL);
    }
    if (res->ai_route_len != 0 || res->ai_connect_len != 0) {
        BASE_LOG(Error, "an address with an InfiniBand path or connect data: this device has none of them");
        return status_failed(EOPNOTSUPP);
    }
    rdma_cm_id *made = nullptr;
    if (softrdma_rdma_create_id(nullptr, &made, nullptr, static_cast<rdma_port_space>(res->ai_port_space)) !=
        0) {
        return -1;
    }
    const bool right_type = static_cast<int>(made->qp_type) == res->ai_qp_type;
    if (!right_type || prepare(*made, *res, pd, attributes) != 0) {
        errno = right_type ? errno : EINVAL;
        return undone([&] { softrdma_rdma_destroy_ep(made); });
    }
    *id = made;
    return 0;
}

void softrdma_rdma_destroy_ep(rdma_cm_id *id) {
    if (id->qp != nullptr) {
        softrdma_rdma_destroy_qp(id);
    }
    if (id->srq != nullptr) {
        softrdma_rdma_destroy_srq(id);
    }
    (void)softrdma_rdma_destroy_id(id);
}

int softrdma_rdma_get_request(rdma_cm_id *listen, rdma_cm_id **id) {
    auto &listener = *static_cast<CmId *>(listen);
    CmId *child = nullptr;
    if (status_of([&] { return listener.next_request(); }, &child) != 0) {
        return -1;
    }
    if (listener.children_queue_pair) {
        ibv_qp_init_attr attributes = *listener.children_queue_pair;
        if (softrdma_rdma_create_qp(child, listen->pd, &attributes) != 0) {
            return undone([&] { (void)softrdma_rdma_destroy_id(child); });
        }
    }
    *id = child;
    return 0;
}
