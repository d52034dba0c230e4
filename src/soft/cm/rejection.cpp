// SPDX-License-Identifier: BSD-3-Clause
#include "soft/cm/rejection.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/origin.hpp"
#include "soft/progress/engines.hpp"

namespace soft {

base::Result<void> send_rejection(Link &link, const wire::MpaFrame &request, Reason reason,
                                  std::span<const std::byte> private_data) {
    std::array<std::byte, wire::mpa_max_frame_bytes> bytes;
    const std::size_t size =
        wire::encode_mpa_frame({.role = wire::MpaRole::Reply,
                                .revision = std::min<std::uint8_t>(request.revision, 2),
                                .crc = request.crc,
                                .reject = true,
                                .soft_operations = request.soft_operations && reason == Reason::NoDescriptors,
                                .enhanced = request.enhanced,
                                .peer_to_peer = request.peer_to_peer,
                                .rtr_write = request.peer_to_peer,
                                .private_data = private_data},
                               bytes);
    return link.send_all(std::span{bytes}.first(size));
}

base::Result<void> refuse(std::unique_ptr<Link> link, const tcp::Address &peer, const wire::MpaFrame &request,
                          Reason reason, std::span<const std::byte> private_data) {
    const auto sent = send_rejection(*link, request, reason, private_data);
    link->finish();
    Engines::instance().drains().add(std::move(link), base::origin_of(peer));
    return sent;
}

}  // namespace soft
