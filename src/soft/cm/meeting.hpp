// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/meeting: how two soft devices of one host find each other, and go on through memory. Both know the
// addresses of the TCP connection that they have.
//
//     initiator                                     responder
//     listens at a Unix socket named for the
//     connection, and offers this in its MPA
//     request (Meeting)                             connects to that Unix socket, makes the memory, sends
//                                                   its descriptor, and says so in its MPA reply (meet())
//     maps the memory (join())
//
// The name is in the abstract namespace, which belongs to the network namespace: a peer of another one is not
// found. It need not be secret, because the kernel tells whose process is at the other end of a Unix socket
// (SO_PEERCRED), and each end goes on with a process of its own user alone. In doubt the connection stays on
// TCP, and the log says why.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/link/memory_link.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

// What the two ends have made for their link.
class Met {
public:
    Met(SharedRings rings, base::Fd socket) : rings_{std::move(rings)}, socket_{std::move(socket)} {}
    // From here on the connection goes through memory.
    [[nodiscard]] std::unique_ptr<Link> take_over(std::unique_ptr<Link> tcp) {
        return std::make_unique<MemoryLink>(std::move(rings_), std::move(socket_), std::move(tcp));
    }

private:
    SharedRings rings_;
    base::Fd socket_;
};

class Meeting {
public:
    // The initiator's, before its request, of a connection that `group` will serve. Returns nothing where the
    // peer is on another host, or cannot be met.
    [[nodiscard]] static std::unique_ptr<Meeting> offer(const tcp::Address &here, const tcp::Address &there,
                                                        Group &group);
    explicit Meeting(base::Fd socket) : socket_{std::move(socket)} {}

    // The reply says that the peer has come. ECONNRESET: it is not there. EMFILE, ENFILE, ENOMEM, EPROTO.
    [[nodiscard]] base::Result<Met> join() const;

private:
    base::Fd socket_;
};

// The responder's, before its reply to a request that offers it, of a connection that `group` will serve.
// Returns nothing where it cannot be: the connection stays on TCP.
[[nodiscard]] std::optional<Met> meet(const tcp::Address &here, const tcp::Address &there, Group &group);

}  // namespace soft
