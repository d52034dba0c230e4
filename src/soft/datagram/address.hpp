// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram/address: address handles. A handle has the GID or multicast group of the destination, and the
// GID of the device that is the source.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/result.hpp"
#include "soft/datagram/socket.hpp"

namespace soft {

inline constexpr std::uint32_t multicast_qp_num = 0xffffff;

struct AddressHandle : ibv_ah {
    // Fails with EINVAL when no GID is named, or its family is not that of the source.
    [[nodiscard]] static base::Result<AddressHandle *> create(ibv_pd &pd, const ibv_ah_attr &attributes);

    ibv_gid source{};
    udp::Endpoint to;  // its port is in a queue pair's number; for a group it is limits::multicast_port
    bool multicast = false;
};

// Returns the attributes with `source` as source; when the device does not have that GID, with the first one
// of the same family.
[[nodiscard]] ibv_ah_attr address_attributes(const Device &device, const ibv_gid &source,
                                             const ibv_gid &destination);
// Returns the attributes for an answer to the sender of a message. Fails with EINVAL when the completion has
// no global route header.
[[nodiscard]] base::Result<ibv_ah_attr> address_attributes(const Device &device, const ibv_wc &completion,
                                                           const ibv_grh &header);

}  // namespace soft
