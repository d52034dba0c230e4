// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/own_certificates: the certificates of x509:FILE, read and ready for OpenSSL. Everybody who
// can begin a handshake has a server use them. So they stay in memory, and a handshake asks only whether the
// files have changed.
#pragma once

#include <openssl/types.h>

#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "soft/tls/tls_certificates.hpp"

namespace soft {

class OwnCertificates {
public:
    // Keys have 112 bits of strength, as RSA of 2048 bits has, and no signature is with SHA-1.
    static constexpr int security_level = 2;

    // Returns the certificates that the files have now. Fails, and logs why, when one of the files cannot be
    // used: with EACCES, EINVAL, or as open(2) does. OpenSslErrors are the caller's. Throws std::bad_alloc.
    [[nodiscard]] static base::Result<std::shared_ptr<const OwnCertificates>> current(const char *file);

    explicit OwnCertificates(TlsCertificates &&files) : files_{std::move(files)} {}
    OwnCertificates(const OwnCertificates &) = delete;
    OwnCertificates &operator=(const OwnCertificates &) = delete;
    ~OwnCertificates();

    [[nodiscard]] const TlsCertificates &files() const { return files_; }
    // Returns OpenSSL's context, which has the certificates of the CAs, this host's certificate and its key.
    [[nodiscard]] SSL_CTX *context() const { return context_; }
    // Returns the identity of this host's certificate.
    [[nodiscard]] const std::string &identity() const { return identity_; }
    [[nodiscard]] std::optional<std::time_t> not_before() const { return not_before_; }
    [[nodiscard]] std::optional<std::time_t> not_after() const { return not_after_; }

private:
    // Reads the files, once.
    [[nodiscard]] base::Result<void> load();
    [[nodiscard]] base::Result<void> load_authorities();
    [[nodiscard]] base::Result<void> load_certificate();
    [[nodiscard]] base::Result<void> load_key();
    [[nodiscard]] base::Result<void> learn(X509 &certificate);

    const TlsCertificates files_;
    SSL_CTX *context_ = nullptr;
    std::string identity_;
    std::optional<std::time_t> not_before_;
    std::optional<std::time_t> not_after_;
};

}  // namespace soft
