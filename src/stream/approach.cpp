// SPDX-License-Identifier: BSD-3-Clause
#include "stream/approach.hpp"

#include <utility>

#include "stream/address.hpp"

namespace stream {

namespace {

// The device may take this long to find the peer's address, and as long to find the route.
constexpr int resolve_timeout_ms = 4000;

}  // namespace

base::Result<Approach> Approach::on_socket(Side side, int socket) {
    const auto name = name_of(socket);
    if (!name) {
        return std::unexpected{name.error()};
    }
    const auto device = Device::soft_at(*name);
    if (!device) {
        return std::unexpected{device.error()};
    }
    const int flags = RPMA_ADOPT_SHARE_FD | (side == Side::Active ? RPMA_ADOPT_INITIATOR : 0);
    return Approach{.device = *device,
                    .side = side,
                    .make_request =
                        [peer = (*device)->peer(), socket, flags](rpma_conn_cfg *cfg) {
                            return made<Request>(rpma_conn_req_adopt_fd, peer, socket, flags,
                                                 static_cast<const rpma_conn_cfg *>(cfg));
                        },
                    .on_socket_of_caller = true};
}

Approach Approach::to(const Device &device, const sockaddr_storage &local, const sockaddr_storage &remote) {
    const auto make_request = [peer = device.peer(), local,
                               remote](rpma_conn_cfg *cfg) -> base::Result<Request> {
        const auto host = host_of(remote);
        if (!host) {
            return std::unexpected{host.error()};
        }
        int result = rpma_conn_cfg_set_timeout(cfg, resolve_timeout_ms);
        result = result != 0 ? result
                             : rpma_conn_cfg_set_source_addr(cfg, reinterpret_cast<const sockaddr *>(&local));
        if (result != 0) {
            return failure_of(result);
        }
        return made<Request>(rpma_conn_req_begin, peer, host->c_str(), port_text(remote).c_str(),
                             static_cast<const rpma_conn_cfg *>(cfg));
    };
    return {
        .device = &device, .side = Side::Active, .make_request = make_request, .on_socket_of_caller = false};
}

Approach Approach::answering(Asked asked) {
    const Device *const device = asked.device;
    auto make_request = [peer = device->peer(), request = std::move(asked.request)](
                            rpma_conn_cfg *cfg) mutable -> base::Result<Request> {
        const int result = rpma_conn_req_prepare(request.get(), peer, cfg);
        if (result != 0) {
            return failure_of(result);
        }
        return std::move(request);
    };
    return {.device = device,
            .side = Side::Passive,
            .make_request = std::move(make_request),
            .on_socket_of_caller = false};
}

}  // namespace stream
