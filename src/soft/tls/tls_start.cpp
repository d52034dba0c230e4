// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/tls_start.hpp"

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "soft/tls/certificate_proof.hpp"
#include "soft/tls/key_proof.hpp"
#include "soft/tls/openssl.hpp"
#include "soft/tls/own_certificates.hpp"
#include "soft/tls/tls_link.hpp"

namespace soft {

base::Result<void> may_let_in(const base::TlsAsked &asked) {
    if (asked.how == base::TlsAsked::How::Keys) {
        const auto keys = TlsKeys::read(asked.file.c_str());
        return keys ? base::Result<void>{} : std::unexpected{keys.error()};
    }
    if (!asked.is_required()) {
        return {};
    }
    if (OpenSsl::find() == nullptr) {
        return base::failure(EPROTONOSUPPORT);
    }
    const OpenSslErrors own;
    const auto certificates = OwnCertificates::current(asked.file.c_str());
    return certificates ? base::Result<void>{} : std::unexpected{certificates.error()};
}

namespace {

std::unique_ptr<TlsProof> proof_of(TlsProof::Side side, base::SharedTls asked, const sockaddr_storage &peer) {
    if (asked->how == base::TlsAsked::How::Certificates) {
        return std::make_unique<CertificateProof>(side, std::move(asked), peer);
    }
    return std::make_unique<KeyProof>(side, std::move(asked));
}

}  // namespace

TlsStart::TlsStart(Side side, base::SharedTls asked, Link &link, const sockaddr_storage &peer)
    : side_{side}, link_{link}, proof_{proof_of(side, std::move(asked), peer)} {}

// Makes OpenSSL's object.
bool TlsStart::begin() {
    if (OpenSsl::find() == nullptr) {
        proof_->fail_without_openssl();
        return false;
    }
    const OpenSslErrors own;
    auto ssl = proof_->make();
    if (!ssl) {
        return false;
    }
    session_ = std::make_unique<TlsSession>(std::move(ssl), link_);
    return true;
}

TlsStart::State TlsStart::go_on() {
    if (session_ == nullptr && !begin()) {
        return State::Failed;
    }
    const auto shaken = session_->shake();
    proof_->end_step();
    switch (shaken) {
        case TlsSession::Shake::Waits:
            return State::Waits;
        case TlsSession::Shake::Failed:
            fail();
            return State::Failed;
        case TlsSession::Shake::Done:
            break;
    }
    return proof_->is_proved(*session_) ? State::Done : State::Failed;
}

std::unique_ptr<Link> TlsStart::secured(std::unique_ptr<Link> &&link) {
    return std::make_unique<TlsLink>(std::move(link), std::move(session_));
}

bool TlsStart::is_refused(Link &link) {
    const TlsLink *const secure = link.tls();
    const std::optional<int> alert = secure != nullptr ? secure->alert() : std::nullopt;
    if (!alert) {
        return false;
    }
    explain(reason_of_alert(*alert));
    return true;
}

// Says why OpenSSL failed.
void TlsStart::fail() {
    if (proof_->error() != 0) {
        return;
    }
    if (session_->error() == ECONNRESET) {
        proof_->fail_with(ECONNRESET,
                          "%s closed the connection during the handshake of TLS: it may not speak TLS",
                          side_ == Side::Client ? "the server" : "the client");
    } else if (session_->error() != EPROTO) {
        proof_->fail_with(session_->error(), "%s", std::strerror(session_->error()));
    } else {
        explain(session_->reason());
    }
}

void TlsStart::explain(int reason) {
    const char *const peer = side_ == Side::Client ? "the server" : "the client";
    if (proof_->explain(reason)) {
        return;
    }
    if (is_one_of(reason, {SSL_R_UNSUPPORTED_PROTOCOL, SSL_R_WRONG_SSL_VERSION, SSL_R_VERSION_TOO_LOW,
                           reason_of_alert(SSL_AD_PROTOCOL_VERSION)})) {
        proof_->fail_with(EPROTO, "%s does not speak TLS 1.3", peer);
    } else if (is_one_of(reason,
                         {SSL_R_WRONG_VERSION_NUMBER, SSL_R_HTTP_REQUEST, SSL_R_HTTPS_PROXY_REQUEST})) {
        proof_->fail_with(EPROTO, "%s does not speak TLS", peer);
    } else if (reason == reason_of_alert(SSL_AD_INTERNAL_ERROR)) {
        proof_->fail_with(
            EPROTO,
            "%s cannot go on with TLS, for instance because it cannot read its keys: its log says why", peer);
    } else if (reason >= SSL_AD_REASON_OFFSET) {
        proof_->fail_with(EPROTO, "%s ends the handshake of TLS: %s", peer,
                          OpenSsl::found().SSL_alert_desc_string_long(reason - SSL_AD_REASON_OFFSET));
    } else {
        const char *const text = OpenSsl::found().ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, reason));
        proof_->fail_with(EPROTO, "%s does not speak TLS as it should (OpenSSL: %s)", peer,
                          text != nullptr ? text : "unknown reason");
    }
}

}  // namespace soft
