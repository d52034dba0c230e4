// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/tls_start: the handshake of TLS 1.3 on one link, with a key that both ends have (RFC 8446
// section 2.2, psk_dhe_ke). Nothing else is offered or accepted: no certificate, no earlier version, no key
// without Diffie-Hellman, no tickets and so no resumption and no early data. The file of keys is read for
// each handshake, so a key that is taken out of it lets nobody in any more. A server reads it when the client
// names an identity, so a peer that sends less costs neither time nor memory for keys.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "soft/ground/tls_keys.hpp"
#include "soft/link/link.hpp"
#include "soft/link/tls_session.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

class TlsStart {
public:
    enum class Side : std::uint8_t { Client, Server };

    // The link outlives it, unless secured() takes the link.
    TlsStart(Side side, Link &link) : side_{side}, link_{link} {}
    TlsStart(const TlsStart &) = delete;
    TlsStart &operator=(const TlsStart &) = delete;
    ~TlsStart() = default;

    // Goes on as far as that is possible now. The user calls it again when the link is readable.
    enum class State : std::uint8_t { Done, Waits, Failed };
    [[nodiscard]] State go_on();
    // When it is done: returns the link that is secure from now on. `link` is the one that it began with.
    [[nodiscard]] std::unique_ptr<Link> secured(std::unique_ptr<Link> &&link);
    // When it failed: the errno value for the program, and a text for a person. EACCES: the two ends have no
    // key together; EPROTO: the peer speaks something else; ECONNRESET: it closed; others: the keys cannot be
    // read.
    [[nodiscard]] int error() const { return error_; }
    [[nodiscard]] const char *text() const { return text_.data(); }
    // Returns the identity of the key in use. A client's is its own, a server's that of its client.
    [[nodiscard]] const std::string &identity() const { return identity_; }

private:
    struct Callbacks;  // OpenSSL's, which ask for the key
    enum class Found : std::uint8_t { NotAsked, Unknown, Known };

    [[nodiscard]] bool begin();
    // Throws std::bad_alloc.
    [[nodiscard]] bool read_keys();
    void fail();
    void fail_without_keys();
    [[nodiscard]] bool fails_for_the_key(int reason);
    [[gnu::format(printf, 3, 4)]] void fail_with(int error, const char *format, ...);

    const Side side_;
    Link &link_;
    std::optional<TlsKeys> keys_;  // a server has them only while it looks for a key
    int keys_error_ = 0;           // the errno value for which the keys cannot be read
    unsigned asked_ = 0;           // the number of identities that the client has named
    std::string identity_;         // with other characters than a person reads replaced
    Found found_ = Found::NotAsked;
    std::unique_ptr<TlsSession> session_;
    int error_ = 0;
    std::array<char, 256> text_{};
};

// Prepares the group of a connection for a secure link, if the environment asks for TLS: it keeps bytes of
// which the socket does not tell. Fails with EMFILE, ENFILE or ENOMEM.
[[nodiscard]] base::Result<void> may_be_secure(Group &group);

}  // namespace soft
