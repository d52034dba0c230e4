// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/certificate_proof: a handshake of TLS 1.3 in which both ends have certificates of a CA
// (RPMA_TLS=x509:FILE). The identity of an end is the first name of DNS in its certificate. A server lets in
// clients whose certificate is for clients (clientAuth) and has a name that FILE lists, if it lists any. A
// client speaks to servers whose certificate is for servers (serverAuth), and has a name that FILE lists, or,
// without a list, the address that it connects to.
#pragma once

#include <sys/socket.h>

#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "soft/tls/openssl.hpp"
#include "soft/tls/own_certificates.hpp"
#include "soft/tls/tls_proof.hpp"

namespace soft {

class CertificateProof final : public TlsProof {
public:
    CertificateProof(Side side, base::SharedTls asked, const sockaddr_storage &address)
        : TlsProof{side, std::move(asked)}, address_{address} {}

    [[nodiscard]] std::unique_ptr<SSL, SslFree> make() override;
    [[nodiscard]] bool is_proved(const TlsSession &session) override;
    [[nodiscard]] bool explain(int reason) override;
    [[nodiscard]] base::Result<bool> still_holds(TlsReading &files) override;
    [[nodiscard]] const char *words() const override { return "the certificate of"; }

private:
    struct Callbacks;  // OpenSSL's, which ask for certificates and show those of the peer
    struct ChainFree {
        void operator()(STACK_OF(X509) * chain) const;
    };

    // Throws std::bad_alloc.
    [[nodiscard]] bool read_own();
    // Looks at the peer's certificate, which a CA has issued. Returns 0 or OpenSSL's error for it, and has
    // then failed. Throws std::bad_alloc.
    [[nodiscard]] int check(X509 *certificate);
    // Throws std::bad_alloc.
    void keep(X509_STORE_CTX *chain);
    [[nodiscard]] int check_server(X509 *certificate, const std::vector<std::string> &names);
    // Fails for OpenSSL's error of a certificate in the chain of the peer's own, which is at depth 0.
    void refuse(int error, int depth, X509 *certificate, X509 *own);
    // The peer has refused the certificate of this side.
    void explain_alert(int alert);
    [[nodiscard]] Side other() const { return side_ == Side::Client ? Side::Server : Side::Client; }

    const sockaddr_storage address_;  // the peer's
    std::shared_ptr<const OwnCertificates> own_;
    // The peer's certificate, which is right, and those that came with it.
    CertificatePointer shown_;
    std::unique_ptr<STACK_OF(X509), ChainFree> shown_with_;
};

}  // namespace soft
