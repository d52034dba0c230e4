// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_start: the handshake of TLS 1.3 on one link, with the proof that is asked for (tls_proof).
// No earlier version, no tickets and so no resumption and no early data are offered or accepted.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>

#include "soft/link/link.hpp"
#include "soft/tls/tls_proof.hpp"
#include "soft/tls/tls_session.hpp"

namespace soft {

class TlsStart {
public:
    using Side = TlsProof::Side;

    // The link outlives it, unless secured() takes the link. `peer` is the address that the link goes to.
    TlsStart(Side side, base::SharedTls asked, Link &link, const sockaddr_storage &peer);
    TlsStart(const TlsStart &) = delete;
    TlsStart &operator=(const TlsStart &) = delete;
    ~TlsStart() = default;

    // Goes on as far as that is possible now. The user calls it again when the link is readable.
    enum class State : std::uint8_t { Done, Waits, Failed };
    [[nodiscard]] State go_on();
    // When it is done: returns the link that is secure from now on. `link` is the one that it began with.
    [[nodiscard]] std::unique_ptr<Link> secured(std::unique_ptr<Link> &&link);
    // The secure link has failed before the peer's first bytes. A server refuses a client's certificate when
    // the client has done the handshake already. Returns whether it was that, and so error() and text() say
    // why.
    [[nodiscard]] bool is_refused(Link &link);
    // Gives the proof away. It is the last call.
    [[nodiscard]] std::unique_ptr<TlsProof> take_proof() { return std::move(proof_); }
    // When it failed: the errno value for the program, and a text for a person. EACCES: the peer has not
    // proved who it is, or this side has not; EPROTO: the peer speaks something else; ECONNRESET: it closed;
    // others: the files cannot be read.
    [[nodiscard]] int error() const { return proof_->error(); }
    [[nodiscard]] const char *text() const { return proof_->text(); }
    // Returns the identity of the client. A client's is its own, a server's that of its client.
    [[nodiscard]] const std::string &identity() const { return proof_->identity(); }
    [[nodiscard]] const char *words() const { return proof_->words(); }

private:
    [[nodiscard]] bool begin();
    void fail();
    void explain(int reason);

    const Side side_;
    Link &link_;
    std::unique_ptr<TlsProof> proof_;
    std::unique_ptr<TlsSession> session_;
};

// Reads the keys or the certificates of this host that are asked for, so that a program that listens learns
// at its beginning that nobody will get in. Fails with EPROTONOSUPPORT, or as TlsKeys::read and
// OwnCertificates::current. Throws std::bad_alloc.
[[nodiscard]] base::Result<void> may_let_in(const base::TlsAsked &asked);

}  // namespace soft
