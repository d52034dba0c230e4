// SPDX-License-Identifier: BSD-3-Clause
// A peer that speaks TLS with OpenSSL's own calls on a socket. Every function asserts (cmocka) that it
// succeeds, unless it says otherwise.
#pragma once

#include <openssl/types.h>

#include <functional>
#include <string>

// This comes last, because it asserts.
#include "peer.hpp"

namespace test {

// How a peer speaks TLS.
struct TlsHabits {
    std::string identity = "one";
    std::string key = "0123456789abcdef";
    bool old_version = false;  // TLS 1.2, and nothing newer
    bool no_key = false;       // as a client it names no key, as a server it has a certificate
    // Gives OpenSSL's context certificates in place of all that.
    std::function<void(SSL_CTX *)> certify = {};
};

class TlsPeer {
public:
    TlsPeer(const Peer &peer, bool client, const TlsHabits &habits);
    ~TlsPeer();
    TlsPeer(const TlsPeer &) = delete;
    TlsPeer &operator=(const TlsPeer &) = delete;

    // Goes on with the handshake as far as the bytes that the other side has sent allow. Returns what this
    // side would send then, at least a byte, and sends none of it.
    [[nodiscard]] Bytes flight();
    // Does the handshake. Returns whether it succeeded; a client may learn of the server's refusal later.
    [[nodiscard]] bool shake();
    // Receives an alert or the end. Returns whether no byte came before it.
    [[nodiscard]] bool is_refused();
    // Returns the name of the subject of the certificate that the other side has shown.
    [[nodiscard]] std::string name_of_peer() const;
    // Sends the end of TLS.
    void end();
    void send(std::span<const std::byte> bytes);
    [[nodiscard]] Bytes receive(std::size_t size);

private:
    SSL_CTX *context_ = nullptr;
    SSL *ssl_ = nullptr;
    TlsHabits habits_;
};

}  // namespace test
