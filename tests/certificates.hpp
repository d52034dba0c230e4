// SPDX-License-Identifier: BSD-3-Clause
// The tests' own certificates: a CA that lasts as long as a test, and what it issues. Every function asserts
// that OpenSSL does what it is asked for.
#pragma once

#include <openssl/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace test {

struct CertificateFree {
    void operator()(X509 *one) const;
    void operator()(EVP_PKEY *one) const;
    void operator()(X509_CRL *one) const;
};
using CertificatePointer = std::unique_ptr<X509, CertificateFree>;
using KeyPointer = std::unique_ptr<EVP_PKEY, CertificateFree>;
using RevocationsPointer = std::unique_ptr<X509_CRL, CertificateFree>;

// This is what a certificate says.
struct CertificateWish {
    std::string name = "peer";                            // of its subject
    std::string others = "DNS:peer,IP:127.0.0.1,IP:::1";  // subjectAltName; empty: none
    std::string purposes = "clientAuth,serverAuth";       // extendedKeyUsage; empty: none
    std::string constraints = "critical,CA:FALSE";        // basicConstraints
    long begins = -3600;                                  // in seconds from now
    long ends = 3600;
};

// A certificate with its private key.
struct Issued {
    CertificatePointer certificate;
    KeyPointer key;
};

// Returns a certificate that this issuer has signed; without one it signs itself.
[[nodiscard]] Issued issue(const CertificateWish &wish, const Issued *issuer);
// Returns a CA.
[[nodiscard]] Issued make_authority(const std::string &name, const Issued *issuer = nullptr);
// Returns the issuer's list of revoked certificates, with these in it.
[[nodiscard]] RevocationsPointer revoke(const Issued &issuer, const std::vector<const X509 *> &revoked);

// These write files in PEM; a key's file is its owner's alone.
void write_certificates(const std::filesystem::path &file, const std::vector<const X509 *> &certificates);
void write_key(const std::filesystem::path &file, const EVP_PKEY &key);
void write_revocations(const std::filesystem::path &file, const X509_CRL &revocations);
[[nodiscard]] Issued read_issued(const std::filesystem::path &certificate, const std::filesystem::path &key);

}  // namespace test
