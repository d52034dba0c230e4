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
// Then each makes a MemoryLink of the memory and its link on TCP, and the Unix socket is closed.
//
// The name is in the abstract namespace, which belongs to the network namespace: a peer of another one is not
// found. It need not be secret, because the kernel names the process at the other end of a Unix socket
// (SO_PEERCRED), and each end continues only with a process of its own user. In doubt the connection stays on
// TCP, and the log gives the reason.
#pragma once

#include <memory>
#include <optional>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "base/tls.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/link/shared_rings.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

class Meeting {
public:
    // Is called by the initiator before its request, for a connection that `group` will serve. Returns
    // nothing when the peer is on another host, or cannot be met, or the connection uses TLS.
    [[nodiscard]] static std::unique_ptr<Meeting> offer(const tcp::Address &here, const tcp::Address &there,
                                                        const base::TlsAsked &tls, Group &group);
    explicit Meeting(base::Fd socket) : socket_{std::move(socket)} {}

    // Is called when the reply says that the peer has come. Fails with ECONNRESET when the peer is not there,
    // or with EMFILE, ENFILE, ENOMEM or EPROTO.
    [[nodiscard]] base::Result<SharedRings> join() const;

private:
    base::Fd socket_;
};

// Is called by the responder before its reply to a request that offers it, for a connection that `group` will
// serve. Returns nothing when that is not possible; the connection then stays on TCP.
[[nodiscard]] std::optional<SharedRings> meet(const tcp::Address &here, const tcp::Address &there,
                                              const base::TlsAsked &tls, Group &group);

}  // namespace soft
