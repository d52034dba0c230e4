// SPDX-License-Identifier: BSD-3-Clause
// soft/api/datagram: softrdma_X, the C functions of address handles and multicast groups.
#include <cerrno>

#include "soft/api/made.hpp"
#include "soft/cm/datagram_id.hpp"
#include "soft/datagram/address.hpp"
#include "soft/datagram/queue_pair.hpp"
#include "soft/memory/memory.hpp"
#include "softrdma.h"

namespace {

using soft::AddressHandle;
using soft::AnyQueuePair;
using soft::DatagramId;
using soft::DatagramQueuePair;
using soft::Device;

DatagramQueuePair &datagrams_of(ibv_qp *qp) {
    return *static_cast<DatagramQueuePair *>(AnyQueuePair::of(qp));
}

int failed(int error) {
    errno = error;
    return -1;
}

int join(rdma_cm_id *id, const sockaddr *address, bool only_sends, void *context) {
    if (id->qp_type != IBV_QPT_UD || address == nullptr || static_cast<DatagramId *>(id)->inherited()) {
        return failed(EINVAL);
    }
    return soft::status_of(
        [&] { return static_cast<DatagramId *>(id)->join(*address, only_sends, context); });
}

}  // namespace

// ---- address handles ----

ibv_ah *softrdma_ibv_create_ah(ibv_pd *pd, ibv_ah_attr *attributes) {
    return soft::made([&]() -> ibv_ah * { return soft::value_of(AddressHandle::create(*pd, *attributes)); });
}

int softrdma_ibv_destroy_ah(ibv_ah *ah) {
    static_cast<soft::ProtectionDomain *>(ah->pd)->users.fetch_sub(1, std::memory_order_release);
    delete static_cast<AddressHandle *>(ah);
    return 0;
}

int softrdma_ibv_init_ah_from_wc(ibv_context *context, uint8_t port_num, ibv_wc *wc, ibv_grh *grh,
                                 ibv_ah_attr *attributes) {
    if (port_num != 1) {
        return failed(EINVAL);
    }
    return soft::status_of([&]() -> base::Result<void> {
        const auto back = soft::address_attributes(*static_cast<const Device *>(context->device), *wc, *grh);
        if (!back) {
            return std::unexpected{back.error()};
        }
        *attributes = *back;
        return {};
    });
}

ibv_ah *softrdma_ibv_create_ah_from_wc(ibv_pd *pd, ibv_wc *wc, ibv_grh *grh, uint8_t port_num) {
    ibv_ah_attr attributes{};
    if (softrdma_ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attributes) != 0) {
        return nullptr;
    }
    return softrdma_ibv_create_ah(pd, &attributes);
}

// ---- multicast groups ----

int softrdma_ibv_attach_mcast(ibv_qp *qp, const ibv_gid *gid, uint16_t) {
    return qp->qp_type == IBV_QPT_UD ? datagrams_of(qp).attach(*gid) : EINVAL;
}

int softrdma_ibv_detach_mcast(ibv_qp *qp, const ibv_gid *gid, uint16_t) {
    return qp->qp_type == IBV_QPT_UD ? datagrams_of(qp).detach(*gid) : EINVAL;
}

int softrdma_rdma_join_multicast(rdma_cm_id *id, sockaddr *address, void *context) {
    return join(id, address, false, context);
}

int softrdma_rdma_join_multicast_ex(rdma_cm_id *id, rdma_cm_join_mc_attr_ex *attributes, void *context) {
    constexpr std::uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    if (attributes->comp_mask != needed || attributes->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) {
        return failed(EINVAL);
    }
    const bool only_sends = attributes->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
    return join(id, attributes->addr, only_sends, context);
}

int softrdma_rdma_leave_multicast(rdma_cm_id *id, sockaddr *address) {
    if (id->qp_type != IBV_QPT_UD || address == nullptr) {
        return failed(EINVAL);
    }
    const auto left = static_cast<DatagramId *>(id)->leave(*address);
    return left ? 0 : failed(left.error().number);
}
