// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram/address: address handles: to which GID, or multicast group, and from which of the device's
// own.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/result.hpp"
#include "soft/datagram/socket.hpp"

namespace soft {

inline constexpr std::uint32_t multicast_qp_num = 0xffffff;

struct AddressHandle : ibv_ah {
    // EINVAL: no GID is named, or its family is not that of the source.
    [[nodiscard]] static base::Result<AddressHandle *> create(ibv_pd &pd, const ibv_ah_attr &attributes);

    ibv_gid source{};
    udp::Endpoint to;  // its port is in a queue pair's number; of a group it is limits::multicast_port
    bool multicast = false;
};

// From that GID of the device, or if it has none such the first of the same family.
[[nodiscard]] ibv_ah_attr address_attributes(const Device &device, const ibv_gid &source,
                                             const ibv_gid &destination);
// Back to who sent a message. EINVAL when the completion has no global route header.
[[nodiscard]] base::Result<ibv_ah_attr> address_attributes(const Device &device, const ibv_wc &completion,
                                                           const ibv_grh &header);

}  // namespace soft
