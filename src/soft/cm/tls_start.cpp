// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/tls_start: see the header.
#include "soft/cm/tls_start.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "soft/ground/environment.hpp"
#include "soft/link/openssl.hpp"
#include "soft/link/tls_link.hpp"

namespace soft {

namespace {

using SslContext = SSL_CTX;

constexpr int place_of_start = 0;  // in the object of OpenSSL: its first place is the program's

// An external key goes with one hash, which is SHA-256 unless both ends agree on another (RFC 8446
// section 4.2.11).
constexpr const char *ciphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr std::array<unsigned char, 2> cipher_of_keys{0x13, 0x01};
constexpr const char *groups = "X25519:P-256";

// OpenSSL has no limit for the identities that one client names, which may be thousands.
constexpr unsigned most_identities = 8;

constexpr std::uint64_t options = SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION;

// Returns what OpenSSL needs for a session that both ends have agreed on before: the key. nullptr: no memory.
SSL_SESSION *session_of(SSL *ssl, const TlsKeys::Key &key) {
    const OpenSsl &openssl = OpenSsl::found();
    SSL_SESSION *const session = openssl.SSL_SESSION_new();
    const SSL_CIPHER *const cipher = openssl.SSL_CIPHER_find(ssl, cipher_of_keys.data());
    if (session != nullptr && cipher != nullptr &&
        openssl.SSL_SESSION_set1_master_key(session, key.bytes.data(), key.bytes.size()) == 1 &&
        openssl.SSL_SESSION_set_cipher(session, cipher) == 1 &&
        openssl.SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
        return session;
    }
    openssl.SSL_SESSION_free(session);
    return nullptr;
}

std::string readable(std::string_view identity) {
    std::string text{identity.substr(0, TlsKeys::most_identity_bytes)};
    std::ranges::replace_if(text, [](char one) { return one <= ' ' || one >= 0x7F; }, '?');
    return text;
}

bool is_one_of(int reason, std::initializer_list<int> reasons) {
    return std::ranges::find(reasons, reason) != reasons.end();
}

constexpr int alert(int description) {
    return SSL_AD_REASON_OFFSET + description;
}

}  // namespace

struct TlsStart::Callbacks {
    static TlsStart &of(SSL *ssl) {
        return *static_cast<TlsStart *>(OpenSsl::found().SSL_get_ex_data(ssl, place_of_start));
    }

    // The client's key.
    static int use(SSL *ssl, const EVP_MD *hash, const unsigned char **name, std::size_t *size,
                   SSL_SESSION **session) {
        *session = nullptr;
        const TlsKeys::Key &key = of(ssl).keys_->own();
        // After a first answer the server has chosen a hash, which is that of all our ciphers.
        (void)hash;
        *name = reinterpret_cast<const unsigned char *>(key.identity.data());
        *size = key.identity.size();
        *session = session_of(ssl, key);
        return *session != nullptr ? 1 : 0;
    }

    // The key that a client names to the server. Without one the handshake fails, because the server has no
    // certificate.
    static int find(SSL *ssl, const unsigned char *name, std::size_t size, SSL_SESSION **session) {
        TlsStart &start = of(ssl);
        *session = nullptr;
        const std::string_view identity{reinterpret_cast<const char *>(name), size};
        if (++start.asked_ > most_identities) {
            return 0;
        }
        try {
            start.identity_ = readable(identity);
            if (!start.keys_ && !start.read_keys()) {
                return 0;
            }
        } catch (const std::bad_alloc &) {
            start.keys_error_ = ENOMEM;
            return 0;
        }
        const TlsKeys::Key *const key = start.keys_->find(identity);
        start.found_ = key != nullptr ? Found::Known : Found::Unknown;
        if (key == nullptr) {
            return 1;
        }
        *session = session_of(ssl, *key);
        return *session != nullptr ? 1 : 0;
    }

    // It lasts as long as the process. nullptr: OpenSSL cannot do it.
    static SslContext *context() { return made_once<make>(); }

private:
    static SslContext *make() {
        const OpenSsl &openssl = OpenSsl::found();
        SslContext *const one = openssl.SSL_CTX_new(openssl.TLS_method());
        if (one == nullptr) {
            return nullptr;
        }
        (void)openssl.SSL_CTX_set_options(one, options);
        openssl.SSL_CTX_set_psk_use_session_callback(one, use);
        openssl.SSL_CTX_set_psk_find_session_callback(one, find);
        if (openssl.SSL_CTX_ctrl(one, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr) == 1 &&
            openssl.SSL_CTX_ctrl(one, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, nullptr) == 1 &&
            openssl.SSL_CTX_set_ciphersuites(one, ciphers) == 1 &&
            openssl.SSL_CTX_ctrl(one, SSL_CTRL_SET_GROUPS_LIST, 0, const_cast<char *>(groups)) == 1 &&
            openssl.SSL_CTX_set_num_tickets(one, 0) == 1) {
            (void)openssl.SSL_CTX_ctrl(one, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
            return one;
        }
        openssl.SSL_CTX_free(one);
        return nullptr;
    }
};

base::Result<void> may_be_secure(Group &group) {
    return tls_is_required() ? group.allow_nudges() : base::Result<void>{};
}

void TlsStart::fail_with(int error, const char *format, ...) {
    error_ = error;
    va_list arguments;
    va_start(arguments, format);
    (void)std::vsnprintf(text_.data(), text_.size(), format, arguments);
    va_end(arguments);
}

bool TlsStart::read_keys() {
    auto keys = TlsKeys::read(tls_of_environment().value_or(std::string{}).c_str());
    if (!keys) {
        keys_error_ = keys.error().number;
        return false;
    }
    keys_.emplace(std::move(*keys));
    return true;
}

void TlsStart::fail_without_keys() {
    fail_with(keys_error_, "the keys of TLS cannot be used: %s", std::strerror(keys_error_));
}

// Makes OpenSSL's object.
bool TlsStart::begin() {
    const OpenSsl *const openssl = OpenSsl::find();
    std::optional<OpenSslErrors> own;
    if (openssl != nullptr) {
        own.emplace();
    }
    if (openssl == nullptr || Callbacks::context() == nullptr) {
        fail_with(EPROTONOSUPPORT, "there is no OpenSSL 3 that can do TLS 1.3 here");
        return false;
    }
    if (side_ == Side::Client && !read_keys()) {
        fail_without_keys();
        return false;
    }
    std::unique_ptr<SSL, SslFree> ssl{openssl->SSL_new(Callbacks::context())};
    if (!ssl || openssl->SSL_set_ex_data(ssl.get(), place_of_start, this) != 1) {
        throw std::bad_alloc{};
    }
    if (side_ == Side::Client) {
        identity_ = keys_->own().identity;
        openssl->SSL_set_connect_state(ssl.get());
        // A client that is shown a certificate in place of the key refuses it, because it trusts nobody.
        openssl->SSL_set_verify(ssl.get(), SSL_VERIFY_PEER, nullptr);
    } else {
        openssl->SSL_set_accept_state(ssl.get());
    }
    session_ = std::make_unique<TlsSession>(std::move(ssl), link_);
    return true;
}

TlsStart::State TlsStart::go_on() {
    if (session_ == nullptr && !begin()) {
        return State::Failed;
    }
    const auto shaken = session_->shake();
    if (side_ == Side::Server) {
        keys_.reset();
    }
    switch (shaken) {
        case TlsSession::Shake::Waits:
            return State::Waits;
        case TlsSession::Shake::Failed:
            fail();
            return State::Failed;
        case TlsSession::Shake::Done:
            break;
    }
    if (!session_->uses_key()) {
        fail_with(EACCES, "the handshake of TLS did not use a key");
        return State::Failed;
    }
    return State::Done;
}

std::unique_ptr<Link> TlsStart::secured(std::unique_ptr<Link> &&link) {
    // Nothing is copied: when there is no memory, the link is still the caller's.
    return std::make_unique<TlsLink>(std::move(link), std::move(session_), std::move(identity_));
}

// Says why OpenSSL failed.
void TlsStart::fail() {
    const int reason = session_->reason();
    const char *const peer = side_ == Side::Client ? "the server" : "the client";
    if (keys_error_ != 0) {
        fail_without_keys();
    } else if (session_->error() == ECONNRESET) {
        fail_with(ECONNRESET, "%s closed the connection during the handshake of TLS: it may not speak TLS",
                  peer);
    } else if (session_->error() != EPROTO) {
        fail_with(session_->error(), "%s", std::strerror(session_->error()));
    } else if (fails_for_the_key(reason)) {
        return;
    } else if (is_one_of(reason, {SSL_R_UNSUPPORTED_PROTOCOL, SSL_R_WRONG_SSL_VERSION, SSL_R_VERSION_TOO_LOW,
                                  alert(SSL_AD_PROTOCOL_VERSION)})) {
        fail_with(EPROTO, "%s does not speak TLS 1.3", peer);
    } else if (reason >= SSL_AD_REASON_OFFSET) {
        fail_with(EPROTO, "%s ends the handshake of TLS: %s", peer,
                  OpenSsl::found().SSL_alert_desc_string_long(reason - SSL_AD_REASON_OFFSET));
    } else {
        fail_with(EPROTO, "%s does not speak TLS, or not as it should (OpenSSL's reason %d)", peer, reason);
    }
}

// A server of ours answers handshake_failure to an identity that it does not know, and illegal_parameter to a
// key that is not its own; other servers have other alerts for the same.
bool TlsStart::fails_for_the_key(int reason) {
    const char *const identity = identity_.c_str();
    if (side_ == Side::Client) {
        if (is_one_of(reason, {alert(SSL_AD_HANDSHAKE_FAILURE), alert(SSL_AD_UNKNOWN_PSK_IDENTITY)})) {
            fail_with(EACCES, "the server does not know the key identity %s", identity);
        } else if (is_one_of(reason, {alert(SSL_AD_ILLEGAL_PARAMETER), alert(SSL_AD_DECRYPT_ERROR)})) {
            fail_with(EACCES, "the key of identity %s is not the server's", identity);
        } else if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
            fail_with(EACCES, "the server uses a certificate, and not the key of identity %s", identity);
        }
    } else if (found_ == Found::Unknown) {
        fail_with(EACCES, "the key identity %s of the client is not known here", identity);
    } else if (reason == SSL_R_BINDER_DOES_NOT_VERIFY) {
        fail_with(EACCES, "the key of identity %s is not the client's", identity);
    } else if (found_ == Found::NotAsked &&
               is_one_of(reason, {SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, SSL_R_NO_SHARED_CIPHER,
                                  SSL_R_NO_SUITABLE_KEY_SHARE})) {
        fail_with(EACCES, "the client names no key");
    }
    return error_ != 0;
}

}  // namespace soft
