// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/peer_certificate: what one certificate says, this host's or a peer's. OpenSslErrors are the
// caller's.
#pragma once

#include <sys/socket.h>

#include <openssl/types.h>

#include <array>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "soft/tls/tls_proof.hpp"

namespace soft {

// The certificate belongs to the caller, and outlives it.
class PeerCertificate {
public:
    explicit PeerCertificate(X509 *certificate) : certificate_{certificate} {}

    // Returns the names of DNS among its other names (subjectAltName), in small letters and in their order.
    // A name that TlsCertificates::name_of does not take, such as one with a wildcard, is left out. Throws
    // std::bad_alloc.
    [[nodiscard]] std::vector<std::string> names() const;
    // Returns whether the address is among its other names.
    [[nodiscard]] bool has_address(const sockaddr_storage &address) const;
    // Returns whether it says that it is for this side (extendedKeyUsage).
    [[nodiscard]] bool is_for(TlsProof::Side side) const;
    // Returns when it begins and when it ends; none when the time is not valid.
    [[nodiscard]] std::optional<std::time_t> not_before() const;
    [[nodiscard]] std::optional<std::time_t> not_after() const;

private:
    X509 *certificate_;
};

// A time as text, "2026-11-25 10:00:00 UTC". It needs no memory.
class TimeText {
public:
    explicit TimeText(std::optional<std::time_t> time);
    [[nodiscard]] const char *c_str() const { return characters_.data(); }

private:
    std::array<char, 48> characters_{};
};

// Returns the purpose of that side in the words of a certificate.
[[nodiscard]] inline const char *purpose_of(TlsProof::Side side) {
    return side == TlsProof::Side::Client ? "clientAuth" : "serverAuth";
}

}  // namespace soft
