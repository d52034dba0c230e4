// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "tls_links.hpp"

#include <openssl/ssl.h>

#include <array>
#include <new>
#include <utility>

#include "soft/link/openssl.hpp"

namespace test {

namespace {

using soft::TlsSession;

SSL_SESSION *session_of_key(SSL *ssl) {
    constexpr std::array<unsigned char, 2> aes_128_gcm_sha256{0x13, 0x01};
    constexpr std::array<unsigned char, 32> key{1, 2, 3};
    SSL_SESSION *const session = SSL_SESSION_new();
    assert_non_null(session);
    assert_int_equal(SSL_SESSION_set1_master_key(session, key.data(), key.size()), 1);
    assert_int_equal(SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, aes_128_gcm_sha256.data())), 1);
    assert_int_equal(SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION), 1);
    return session;
}

int use_key(SSL *ssl, const EVP_MD *, const unsigned char **name, std::size_t *size, SSL_SESSION **session) {
    static constexpr std::array<unsigned char, 1> own{'t'};
    *name = own.data();
    *size = own.size();
    *session = session_of_key(ssl);
    return 1;
}

int find_key(SSL *ssl, const unsigned char *, std::size_t, SSL_SESSION **session) {
    *session = session_of_key(ssl);
    return 1;
}

SSL_CTX *context() {
    static SSL_CTX *const made = [] {
        SSL_CTX *const one = SSL_CTX_new(TLS_method());
        assert_non_null(one);
        assert_int_equal(SSL_CTX_set_min_proto_version(one, TLS1_3_VERSION), 1);
        assert_int_equal(SSL_CTX_set_ciphersuites(one, "TLS_AES_128_GCM_SHA256"), 1);
        assert_int_equal(SSL_CTX_set_num_tickets(one, 0), 1);
        SSL_CTX_set_psk_use_session_callback(one, use_key);
        SSL_CTX_set_psk_find_session_callback(one, find_key);
        return one;
    }();
    return made;
}

std::unique_ptr<TlsSession> session_over(soft::Link &link, bool client) {
    assert_non_null(soft::OpenSsl::find());
    std::unique_ptr<SSL, soft::SslFree> ssl{SSL_new(context())};
    assert_non_null(ssl.get());
    if (client) {
        SSL_set_connect_state(ssl.get());
    } else {
        SSL_set_accept_state(ssl.get());
    }
    return std::make_unique<TlsSession>(std::move(ssl), link);
}

}  // namespace

Links tls_over(Links links) {
    auto here = session_over(*links.here, true);
    auto there = session_over(*links.there, false);
    auto client = TlsSession::Shake::Waits;
    auto server = TlsSession::Shake::Waits;
    while (client != TlsSession::Shake::Done || server != TlsSession::Shake::Done) {
        client = here->shake();
        server = there->shake();
        assert_true(client != TlsSession::Shake::Failed && server != TlsSession::Shake::Failed);
    }
    return {.here = std::make_unique<soft::TlsLink>(std::move(links.here), std::move(here), "test"),
            .there = std::make_unique<soft::TlsLink>(std::move(links.there), std::move(there), "test")};
}

Links tls_links() {
    return tls_over(tcp_links());
}

}  // namespace test
