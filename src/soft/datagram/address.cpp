// SPDX-License-Identifier: BSD-3-Clause
#include "soft/datagram/address.hpp"

#include <net/if.h>

#include <algorithm>

#include "base/log.hpp"
#include "soft/ground/limits.hpp"
#include "soft/memory/memory.hpp"

namespace soft {

namespace {

constexpr std::uint8_t unicast_hops = 64;

}  // namespace

base::Result<AddressHandle *> AddressHandle::create(ibv_pd &pd, const ibv_ah_attr &attributes) {
    const auto &device = *static_cast<const Device *>(pd.context->device);
    const auto gids = udp::gids_of(device);
    const ibv_gid &destination = attributes.grh.dgid;
    const std::uint8_t source = attributes.grh.sgid_index;
    if (attributes.is_global == 0 || attributes.port_num != 1 || source >= gids.size() ||
        udp::is_unspecified(destination) || udp::is_ipv4(destination) != udp::is_ipv4(gids[source])) {
        BASE_LOG(Error,
                 "no address handle: expected port 1, a GID as destination (global), and as source one of "
                 "the same IP version out of the %zu of %s; port is %d, global %d, source %d",
                 gids.size(), device.name, attributes.port_num, attributes.is_global,
                 attributes.grh.sgid_index);
        return base::failure(EINVAL);
    }
    auto *const made = new AddressHandle{};
    made->context = pd.context;
    made->pd = &pd;
    made->source = gids[source];
    made->multicast = udp::is_multicast(destination);
    made->to = {.gid = destination,
                .port = made->multicast ? limits::multicast_port : std::uint16_t{0},
                .interface = if_nametoindex(device.interface.c_str())};
    static_cast<ProtectionDomain &>(pd).users.fetch_add(1, std::memory_order_relaxed);
    return made;
}

ibv_ah_attr address_attributes(const Device &device, const ibv_gid &source, const ibv_gid &destination) {
    const auto gids = udp::gids_of(device);
    auto from = std::ranges::find_if(gids, [&](const ibv_gid &one) { return udp::same(one, source); });
    if (from != gids.end() && from + 1 != gids.end() && udp::same(from[1], source)) {
        ++from;  // version 2 of RoCE
    }
    if (from == gids.end()) {
        from = std::ranges::find_if(
            gids, [&](const ibv_gid &one) { return udp::is_ipv4(one) == udp::is_ipv4(destination); });
    }
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.dgid = destination;
    attributes.grh.sgid_index = static_cast<std::uint8_t>(from == gids.end() ? 0 : from - gids.begin());
    attributes.grh.hop_limit =
        udp::is_multicast(destination) ? std::uint8_t{limits::multicast_hops} : unicast_hops;
    return attributes;
}

base::Result<ibv_ah_attr> address_attributes(const Device &device, const ibv_wc &completion,
                                             const ibv_grh &header) {
    if ((completion.wc_flags & IBV_WC_GRH) == 0) {
        return base::failure(EINVAL);
    }
    return address_attributes(device, header.dgid, header.sgid);
}

}  // namespace soft
