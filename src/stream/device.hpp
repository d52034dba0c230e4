// SPDX-License-Identifier: BSD-3-Clause
// stream/device: the RDMA device behind a local address, opened once a process.
#pragma once

#include <sys/socket.h>

#include "stream/owned.hpp"

namespace stream {

class Device {
public:
    // The device that serves an address of this machine. It is kept until the process ends. EADDRNOTAVAIL:
    // there is none. Any thread.
    [[nodiscard]] static base::Result<const Device *> at(const sockaddr_storage &local);

    Device(ibv_context *context, Peer peer);
    [[nodiscard]] rpma_peer *peer() const { return peer_.get(); }
    [[nodiscard]] const rpma_peer_limits &limits() const { return limits_; }
    // Whether a message word is a send of its own, or else a write's immediate data.
    [[nodiscard]] bool is_iwarp() const { return is_iwarp_; }

private:
    Peer peer_;
    rpma_peer_limits limits_{};
    bool is_iwarp_;
};

}  // namespace stream
