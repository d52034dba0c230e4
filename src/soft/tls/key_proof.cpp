// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/key_proof.hpp"

#include <cerrno>
#include <new>
#include <string_view>
#include <utility>

#include "soft/tls/openssl.hpp"
#include "soft/tls/tls_reading.hpp"

namespace soft {

namespace {

constexpr std::array<unsigned char, 2> cipher_of_keys{0x13, 0x01};

// OpenSSL has no limit for the identities that one client names, which may be thousands.
constexpr unsigned most_identities = 8;

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

}  // namespace

struct KeyProof::Callbacks {
    static KeyProof &of(SSL *ssl) { return static_cast<KeyProof &>(TlsProof::of(ssl)); }

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
        KeyProof &proof = of(ssl);
        *session = nullptr;
        const std::string_view identity{reinterpret_cast<const char *>(name), size};
        if (++proof.asked_ > most_identities) {
            return 0;
        }
        try {
            proof.identity_ = readable(identity);
            if (!proof.keys_ && !proof.read_keys()) {
                return 0;
            }
        } catch (const std::bad_alloc &) {
            proof.fail_without_files(ENOMEM);
            return 0;
        }
        const TlsKeys::Key *const key = proof.keys_->find(identity);
        proof.found_ = key != nullptr ? Found::Known : Found::Unknown;
        if (key == nullptr) {
            return 1;
        }
        *session = session_of(ssl, *key);
        return *session != nullptr ? 1 : 0;
    }

    // It lasts as long as the process. nullptr: OpenSSL cannot do it.
    static SSL_CTX *context() {
        constexpr auto make = [] {
            SSL_CTX *const one = new_tls_context();
            if (one != nullptr) {
                OpenSsl::found().SSL_CTX_set_psk_use_session_callback(one, use);
                OpenSsl::found().SSL_CTX_set_psk_find_session_callback(one, find);
            }
            return one;
        };
        return made_once<make>();
    }
};

bool KeyProof::read_keys() {
    auto keys = TlsKeys::read(file());
    if (!keys) {
        fail_without_files(keys.error().number);
        return false;
    }
    keys_.emplace(std::move(*keys));
    return true;
}

std::unique_ptr<SSL, SslFree> KeyProof::make() {
    if (Callbacks::context() == nullptr) {
        fail_without_openssl();
        return nullptr;
    }
    if (side_ == Side::Client && !read_keys()) {
        return nullptr;
    }
    auto ssl = object_of(Callbacks::context());
    if (side_ == Side::Client) {
        identity_ = keys_->own().identity;
        // A client that is shown a certificate in place of the key refuses it, because it trusts nobody.
        OpenSsl::found().SSL_set_verify(ssl.get(), SSL_VERIFY_PEER, nullptr);
    }
    return ssl;
}

void KeyProof::end_step() {
    if (side_ == Side::Server) {
        keys_.reset();
    }
}

bool KeyProof::is_proved(const TlsSession &session) {
    if (!session.uses_key()) {
        fail_with(EACCES, "the handshake of TLS did not use a key");
        return false;
    }
    keys_.reset();  // the proof stays with the connection
    return true;
}

base::Result<bool> KeyProof::still_holds(TlsReading &files) {
    const auto keys = files.keys(file());
    if (!keys) {
        return std::unexpected{keys.error()};
    }
    if ((*keys)->find(identity_) != nullptr) {
        return true;
    }
    fail_with(EACCES, "%s has no key of identity %s any more", file(), identity_.c_str());
    return false;
}

bool KeyProof::explain(int reason) {
    if (side_ == Side::Client) {
        explain_to_client(reason);
    } else {
        explain_to_server(reason);
    }
    return error() != 0;
}

// A server of ours answers handshake_failure to an identity that it does not know, and illegal_parameter to a
// key that is not its own; other servers have other alerts for the same.
void KeyProof::explain_to_client(int reason) {
    const char *const identity = identity_.c_str();
    if (is_one_of(reason, {reason_of_alert(SSL_AD_HANDSHAKE_FAILURE),
                           reason_of_alert(SSL_AD_UNKNOWN_PSK_IDENTITY)})) {
        fail_with(EACCES, "the server does not know the key identity %s", identity);
    } else if (is_one_of(reason, {reason_of_alert(SSL_AD_ILLEGAL_PARAMETER),
                                  reason_of_alert(SSL_AD_DECRYPT_ERROR)})) {
        fail_with(EACCES, "the key of identity %s is not the server's", identity);
    } else if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        fail_with(EACCES, "the server uses a certificate, and not the key of identity %s", identity);
    }
}

void KeyProof::explain_to_server(int reason) {
    const char *const identity = identity_.c_str();
    if (found_ == Found::Unknown) {
        fail_with(EACCES, "the key identity %s of the client is not known here", identity);
    } else if (reason == SSL_R_BINDER_DOES_NOT_VERIFY) {
        fail_with(EACCES, "the key of identity %s is not the client's", identity);
    } else if (found_ == Found::NotAsked &&
               is_one_of(reason, {SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, SSL_R_NO_SHARED_CIPHER,
                                  SSL_R_NO_SUITABLE_KEY_SHARE})) {
        fail_with(EACCES, "the client names no key");
    }
}

}  // namespace soft
