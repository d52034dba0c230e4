// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_proof: how the two ends of a connection prove to each other who they are, in the handshake of
// TLS: with a key that both have (KeyProof), or with certificates (CertificateProof).
#pragma once

#include <openssl/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/tls.hpp"
#include "soft/tls/tls_session.hpp"

namespace soft {

class TlsReading;

class TlsProof {
public:
    enum class Side : std::uint8_t { Client, Server };

    TlsProof(const TlsProof &) = delete;
    TlsProof &operator=(const TlsProof &) = delete;
    virtual ~TlsProof() = default;

    // Makes OpenSSL's object of this side, which calls this proof. Returns nullptr when it has failed. Throws
    // std::bad_alloc.
    [[nodiscard]] virtual std::unique_ptr<SSL, SslFree> make() = 0;
    // Gives back what only one step of the handshake needs.
    virtual void end_step() {}
    // Returns whether the handshake, which is done, has proved who the peer is.
    [[nodiscard]] virtual bool is_proved(const TlsSession &session) = 0;
    // Says why OpenSSL or the peer has ended the handshake for this reason, if the proof is the reason.
    // Returns whether it was.
    [[nodiscard]] virtual bool explain(int reason) = 0;
    // Returns whether the handshake would prove it now too: the files may have changed, and a certificate may
    // have expired. text() says why not. Fails as the files cannot be read. OpenSslErrors are the caller's.
    // Throws std::bad_alloc.
    [[nodiscard]] virtual base::Result<bool> still_holds(TlsReading &files) = 0;
    // Returns in a few words how the peer has proved who it is.
    [[nodiscard]] virtual const char *words() const = 0;

    // Returns the identity of the client: a client's is its own, a server's that of its client.
    [[nodiscard]] const std::string &identity() const { return identity_; }
    // Returns the errno value for the program, 0 while nothing has failed, and a text for a person.
    [[nodiscard]] int error() const { return error_; }
    [[nodiscard]] const char *text() const { return text_.data(); }
    [[gnu::format(printf, 3, 4)]] void fail_with(int error, const char *format, ...);
    void fail_without_openssl();

protected:
    TlsProof(Side side, base::SharedTls asked) : side_{side}, asked_{std::move(asked)} {}

    [[nodiscard]] const char *peer() const { return side_ == Side::Client ? "the server" : "the client"; }
    // Makes OpenSSL's object of that context, with of() for its callbacks. Throws std::bad_alloc.
    [[nodiscard]] std::unique_ptr<SSL, SslFree> object_of(SSL_CTX *context);
    [[nodiscard]] static TlsProof &of(const SSL *ssl);
    void fail_without_files(int error);
    // Returns the file of keys, or that names the certificates.
    [[nodiscard]] const char *file() const { return asked_->file.c_str(); }

    const Side side_;
    std::string identity_;

private:
    const base::SharedTls asked_;
    int error_ = 0;
    std::array<char, 448> text_{};
};

// Returns a context of OpenSSL for TLS 1.3 alone, without tickets, resumption and early data; nullptr when
// OpenSSL cannot do that. OpenSslErrors are the caller's.
[[nodiscard]] SSL_CTX *new_tls_context();

[[nodiscard]] bool is_one_of(int reason, std::initializer_list<int> reasons);

// Returns the reason that OpenSSL has for an alert of the peer.
[[nodiscard]] int reason_of_alert(int description);

// Returns the text with each character that a line of log should not have replaced.
[[nodiscard]] std::string readable(std::string_view text);

}  // namespace soft
