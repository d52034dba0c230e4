// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/key_proof: a handshake of TLS 1.3 with a key that both ends have (RPMA_TLS=psk:FILE; RFC 8446
// section 2.2, psk_dhe_ke). Nothing else is offered or accepted: no certificate, no key without
// Diffie-Hellman. The file of keys is read for each handshake, so a key that is taken out of it lets nobody
// in any more. A server reads it when the client names an identity, so a peer that sends less costs neither
// time nor memory for keys.
#pragma once

#include <optional>
#include <utility>

#include "soft/tls/tls_keys.hpp"
#include "soft/tls/tls_proof.hpp"

namespace soft {

class KeyProof final : public TlsProof {
public:
    KeyProof(Side side, base::SharedTls asked) : TlsProof{side, std::move(asked)} {}

    [[nodiscard]] std::unique_ptr<SSL, SslFree> make() override;
    void end_step() override;
    [[nodiscard]] bool is_proved(const TlsSession &session) override;
    [[nodiscard]] bool explain(int reason) override;
    [[nodiscard]] base::Result<bool> still_holds(TlsReading &files) override;
    [[nodiscard]] const char *words() const override { return "the key of identity"; }

private:
    struct Callbacks;  // OpenSSL's, which ask for the key
    enum class Found : std::uint8_t { NotAsked, Unknown, Known };

    // Throws std::bad_alloc.
    [[nodiscard]] bool read_keys();
    void explain_to_client(int reason);
    void explain_to_server(int reason);

    std::optional<TlsKeys> keys_;  // only while a key is looked for or used
    unsigned asked_ = 0;           // the number of identities that the client has named
    Found found_ = Found::NotAsked;
};

}  // namespace soft
