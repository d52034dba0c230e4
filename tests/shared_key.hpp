// SPDX-License-Identifier: BSD-3-Clause
// The tests' and the benchmarks' own ends of TLS 1.3, with a key that both ends have (an external PSK).
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <span>
#include <string>

namespace test {

// Makes a context. OpenSSL keeps what it has when the process ends, because a thread of the device may still
// use it then; the first call of OpenSSL decides that.
[[nodiscard]] inline SSL_CTX *new_context() {
    (void)OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
    return SSL_CTX_new(TLS_method());
}

// Returns OpenSSL's session for the key; nullptr when OpenSSL cannot make it.
[[nodiscard]] inline SSL_SESSION *session_of_key(SSL *ssl, std::span<const unsigned char> key) {
    constexpr std::array<unsigned char, 2> aes_128_gcm_sha256{0x13, 0x01};
    SSL_SESSION *const session = SSL_SESSION_new();
    if (session != nullptr && SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
        SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, aes_128_gcm_sha256.data())) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
        return session;
    }
    SSL_SESSION_free(session);
    return nullptr;
}

inline constexpr std::array<unsigned char, 32> one_key{1, 2, 3};
inline constexpr std::array<unsigned char, 1> identity_of_one_key{'t'};

// Returns the line of a file of keys for the key of context_of_one_key().
[[nodiscard]] inline std::string line_of_one_key() {
    constexpr const char *digits = "0123456789abcdef";
    std::string line{identity_of_one_key.begin(), identity_of_one_key.end()};
    line += ':';
    for (const unsigned byte : one_key) {
        line += digits[byte >> 4];
        line += digits[byte & 0xF];
    }
    return line + '\n';
}

// Returns the context of ends that all have the same identity and key; nullptr when OpenSSL cannot make it.
// It lasts as long as the process.
[[nodiscard]] inline SSL_CTX *context_of_one_key() {
    static SSL_CTX *const made = []() -> SSL_CTX * {
        SSL_CTX *const one = new_context();
        if (one == nullptr || SSL_CTX_set_min_proto_version(one, TLS1_3_VERSION) != 1 ||
            SSL_CTX_set_ciphersuites(one, "TLS_AES_128_GCM_SHA256") != 1 ||
            SSL_CTX_set1_groups_list(one, "X25519") != 1 || SSL_CTX_set_num_tickets(one, 0) != 1) {
            SSL_CTX_free(one);
            return nullptr;
        }
        SSL_CTX_set_psk_use_session_callback(one, [](SSL *ssl, const EVP_MD *, const unsigned char **name,
                                                     std::size_t *size, SSL_SESSION **session) {
            *name = identity_of_one_key.data();
            *size = identity_of_one_key.size();
            *session = session_of_key(ssl, one_key);
            return *session != nullptr ? 1 : 0;
        });
        SSL_CTX_set_psk_find_session_callback(
            one, [](SSL *ssl, const unsigned char *, std::size_t, SSL_SESSION **session) {
                *session = session_of_key(ssl, one_key);
                return *session != nullptr ? 1 : 0;
            });
        return one;
    }();
    return made;
}

}  // namespace test
