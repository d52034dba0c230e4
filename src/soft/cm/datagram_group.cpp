// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/datagram_group: an id's membership in multicast groups.
#include <algorithm>
#include <cerrno>

#include "soft/cm/datagram_id.hpp"

namespace soft {

base::Result<void> DatagramId::join(const sockaddr &address, bool only_sends, void *join_context) {
    const ibv_gid group = gid_of(address);
    if (verbs == nullptr || (address.sa_family != AF_INET && address.sa_family != AF_INET6) ||
        !udp::is_multicast(group)) {
        return base::failure(EINVAL);
    }
    const bool attaches = qp != nullptr && !only_sends;
    if (const int error = attaches ? datagram_qp()->attach(group) : 0; error != 0) {
        return base::failure(error);
    }
    memberships_.push_back({.group = group, .attached = attaches});
    auto made = std::make_unique<Event>();
    made->event = RDMA_CM_EVENT_MULTICAST_JOIN;
    made->id = this;
    made->param.ud.private_data = join_context;
    made->param.ud.ah_attr = address_attributes(device(), source_gid(), group);
    made->param.ud.qp_num = multicast_qp_num;
    made->param.ud.qkey = RDMA_UDP_QKEY;
    push(std::move(made));
    return wait_if_synchronous();
}

base::Result<void> DatagramId::leave(const sockaddr &address) {
    const ibv_gid group = gid_of(address);
    const auto known = std::ranges::find_if(
        memberships_, [&](const Membership &one) { return udp::same(one.group, group); });
    if (known == memberships_.end()) {
        return base::failure(EADDRNOTAVAIL);
    }
    detach(*known);
    memberships_.erase(known);
    return {};
}

void DatagramId::detach(const Membership &membership) const {
    const auto found = AnyQueuePair::find(membership.attached ? qp_num_ : 0);
    if (found.get() != nullptr) {
        (void)static_cast<DatagramQueuePair *>(found.get())->detach(membership.group);
    }
}

}  // namespace soft
