// SPDX-License-Identifier: BSD-3-Clause
// stream/approach: the ways to begin a stream. They differ in the device, the end that asks, and the request
// of librpma.
#pragma once

#include "stream/listener.hpp"
#include "stream/rpma_connection.hpp"

namespace stream {

enum class Side { Active, Passive };

struct Approach {
    const Device *device;
    Side side;
    RpmaConnection::MakeRequest make_request;
    bool on_socket_of_caller = false;

    // Over the soft device, on a TCP socket that is connected. On it the peer asks (Passive), or is asked
    // (Active). The caller keeps the socket, and closes it after the stream is destroyed.
    [[nodiscard]] static base::Result<Approach> on_socket(Side side, int socket);
    // Asks the peer at the remote address, over the device that serves the local one. When the local port is
    // 0 the device chooses one.
    [[nodiscard]] static Approach to(const Device &device, const sockaddr_storage &local,
                                     const sockaddr_storage &remote);
    // Answers a peer whose request came to a listener.
    [[nodiscard]] static Approach answering(Asked asked);
};

}  // namespace stream
