// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/meeting: lets two soft devices of one host find each other, and continue through memory. Both know
// the addresses of their TCP connection.
//
//     initiator                                     responder
//     listens at a Unix socket named for the
//     connection, and offers this in its MPA
//     request (Meeting)                             connects to that Unix socket, makes the memory, sends
//                                                   its descriptor, and says so in its MPA reply (meet())
//     maps the memory (join())
//
// The name is in the abstract namespace, which belongs to the network namespace: a peer of another one is not
// found. It need not be secret, because the kernel names the process at the other end of a Unix socket
// (SO_PEERCRED), and each end continues only with a process of its own user. In doubt the connection stays on
// TCP, and the log gives the reason.
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

// The objects that the two ends have made for their link.
class Met {
public:
    Met(SharedRings rings, base::Fd socket) : rings_{std::move(rings)}, socket_{std::move(socket)} {}
    // Returns the link through memory, which replaces the one on TCP.
    [[nodiscard]] std::unique_ptr<Link> take_over(std::unique_ptr<Link> tcp) {
        return std::make_unique<MemoryLink>(std::move(rings_), std::move(socket_), std::move(tcp));
    }

private:
    SharedRings rings_;
    base::Fd socket_;
};

class Meeting {
public:
    // Is called by the initiator before its request, for a connection that `group` will serve. Returns
    // nothing when the peer is on another host, or cannot be met.
    [[nodiscard]] static std::unique_ptr<Meeting> offer(const tcp::Address &here, const tcp::Address &there,
                                                        Group &group);
    explicit Meeting(base::Fd socket) : socket_{std::move(socket)} {}

    // Is called when the reply says that the peer has come. Fails with ECONNRESET when the peer is not there,
    // or with EMFILE, ENFILE, ENOMEM or EPROTO.
    [[nodiscard]] base::Result<Met> join() const;

private:
    base::Fd socket_;
};

// Is called by the responder before its reply to a request that offers it, for a connection that `group` will
// serve. Returns nothing when that is not possible; the connection then stays on TCP.
[[nodiscard]] std::optional<Met> meet(const tcp::Address &here, const tcp::Address &there, Group &group);

}  // namespace soft
