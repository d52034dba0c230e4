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
// only with a process of its own user (base/own_user). So the name of a connection without TLS need not be
// secret.
//
// The ends of a connection of TLS have proved who they are, so a process without a key must not come between
// them, though it has the same user. They ask TLS for a secret of this connection, these two addresses and
// this network namespace. It has three parts: the name; the greeting, which comes with the memory, and by
// which the initiator knows the responder; and the password in the memory, by which the responder knows the
// initiator. Any process can see the name once it is there, and have the place of an initiator that is gone,
// but it has no password. In doubt the connection stays on TCP, and the log gives the reason.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/link/link.hpp"
#include "soft/link/shared_rings.hpp"
#include "soft/progress/progress.hpp"
#include "soft/tls/tls_link.hpp"
#include "soft/wire/mpa.hpp"

namespace soft {

// Returns the secret that the two ends of a connection have for this context. It is empty without TLS.
using SecretFor = std::function<std::optional<TlsLink::Secret>(std::string_view context)>;
// Returns the secrets of the connection on this link, which outlives them.
[[nodiscard]] SecretFor secrets_of(Link &link);

// The words by which the two ends of one meeting know each other.
struct Watchwords {
    std::string name;                               // of the Unix socket
    std::string greeting;                           // comes with the descriptor of the memory
    std::optional<SharedRings::Password> password;  // with TLS
};

class Meeting {
public:
    // Is called by the initiator in the thread that asks for the connection, whose network namespace counts.
    // Returns nothing when the peer is on another host, or cannot be met.
    [[nodiscard]] static std::unique_ptr<Meeting> begin(const tcp::Address &here, const tcp::Address &there);
    Meeting(base::Fd socket, const tcp::Address &here, const tcp::Address &there)
        : socket_{std::move(socket)}, here_{here}, there_{there} {}

    // Is called before the request leaves, for a connection that `group` will serve. Returns whether the
    // request may offer the meeting.
    [[nodiscard]] bool offer(const SecretFor &secret, Group &group);
    // Fails with ECONNRESET when the peer is not there, or with EMFILE, ENFILE, ENOMEM or EPROTO.
    [[nodiscard]] base::Result<SharedRings> join();

private:
    base::Fd socket_;
    // A descriptor for join(), because the connection cannot stay on TCP any more when the peer has come.
    base::Fd kept_;
    const tcp::Address here_;
    const tcp::Address there_;
    Watchwords words_;
};

// Is called by the responder before its reply to a request that offers it, for a connection that `group` will
// serve. Returns nothing when that is not possible; the connection then stays on TCP.
[[nodiscard]] std::optional<SharedRings> meet(const tcp::Address &here, const tcp::Address &there,
                                              const SecretFor &secret, Group &group);
// Does so, if the request offers it, and sends the reply, which says so. `link` becomes the one that the
// connection continues on, and stays as it is when the reply cannot be sent.
[[nodiscard]] base::Result<void> send_reply(std::unique_ptr<Link> &link, const tcp::Address &peer,
                                            const wire::MpaFrame &request, wire::MpaFrame reply,
                                            Group &group);

// The initiator behind a reply: returns the link that the connection continues on. When the reply says that
// the peer has come to the meeting, the peer waits at the other end of the memory, and no longer at that of
// TCP; fails as join() does then (logged).
[[nodiscard]] base::Result<std::unique_ptr<Link>> link_behind_reply(std::unique_ptr<Link> link,
                                                                    const tcp::Address &peer,
                                                                    std::unique_ptr<Meeting> meeting,
                                                                    const wire::MpaFrame &reply);

}  // namespace soft
