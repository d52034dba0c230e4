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
// found. The kernel names the process at the other end of a Unix socket (SO_PEERCRED), and each end continues
// only with a process of its own user. So the name of a connection without TLS need not be secret. The ends
// of a connection of TLS have proved who they are, to each other alone, so another process of this user must
// not come between them: the name and the greeting are made of a secret that TLS has given them. In doubt the
// connection stays on TCP, and the log gives the reason.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/link/link.hpp"
#include "soft/link/shared_rings.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

// A connection, as one of its ends sees it.
struct MetOn {
    tcp::Address here{};
    tcp::Address there{};
    bool uses_tls = false;
    std::optional<Link::Secret> secret;  // of the two ends, with TLS
};

// The bytes that the responder sends with the descriptor of the memory: the version, and with TLS a part of
// the secret.
struct Greeting {
    static constexpr std::size_t version_bytes = 16;
    [[nodiscard]] bool is_secret() const { return size > version_bytes; }

    std::array<std::byte, 2 * version_bytes> bytes{};
    std::size_t size = 0;
};

class Meeting {
public:
    // Is called by the initiator before its request, for a connection that `group` will serve. Returns
    // nothing when the peer is on another host, or cannot be met.
    [[nodiscard]] static std::unique_ptr<Meeting> offer(const MetOn &connection, Group &group);
    Meeting(base::Fd socket, const Greeting &greeting) : socket_{std::move(socket)}, greeting_{greeting} {}

    // Is called when the reply says that the peer has come. Fails with ECONNRESET when the peer is not there,
    // or with EMFILE, ENFILE, ENOMEM or EPROTO.
    [[nodiscard]] base::Result<SharedRings> join() const;

private:
    base::Fd socket_;
    const Greeting greeting_;
};

// Is called by the responder before its reply to a request that offers it, for a connection that `group` will
// serve. Returns nothing when that is not possible; the connection then stays on TCP.
[[nodiscard]] std::optional<SharedRings> meet(const MetOn &connection, Group &group);

// Returns a link through memory for an end that has met its peer on the link `met_on`. TLS is over then: its
// bytes would protect nothing from the two processes, and no other process has the memory.
[[nodiscard]] std::unique_ptr<Link> through_memory(SharedRings rings, std::unique_ptr<Link> met_on);

}  // namespace soft
