// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "tls_peer.hpp"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>

#include "../../shared_key.hpp"

namespace test {

namespace {

constexpr timeval patience{.tv_sec = 40, .tv_usec = 0};

const TlsHabits &habits_of(SSL *ssl) {
    return *static_cast<const TlsHabits *>(SSL_get_app_data(ssl));
}

const unsigned char *characters(const std::string &text) {
    return reinterpret_cast<const unsigned char *>(text.data());
}

SSL_SESSION *session_of(SSL *ssl) {
    const std::string &key = habits_of(ssl).key;
    SSL_SESSION *const session = session_of_key(ssl, {characters(key), key.size()});
    assert_non_null(session);
    return session;
}

int use_key(SSL *ssl, const EVP_MD *, const unsigned char **name, std::size_t *size, SSL_SESSION **session) {
    const std::string &identity = habits_of(ssl).identity;
    *name = characters(identity);
    *size = identity.size();
    *session = session_of(ssl);
    return 1;
}

int find_key(SSL *ssl, const unsigned char *name, std::size_t size, SSL_SESSION **session) {
    const std::string_view asked{reinterpret_cast<const char *>(name), size};
    *session = asked == habits_of(ssl).identity ? session_of(ssl) : nullptr;
    return 1;
}

// Makes a certificate that the server itself has signed.
void certify(SSL_CTX *context) {
    EVP_PKEY *const key = EVP_EC_gen("P-256");
    X509 *const certificate = X509_new();
    assert_true(key != nullptr && certificate != nullptr);
    assert_int_equal(X509_set_version(certificate, 2), 1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(certificate), 0));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(certificate), 3600));
    assert_int_equal(X509_set_pubkey(certificate, key), 1);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(context, certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

}  // namespace

TlsPeer::TlsPeer(const Peer &peer, bool client, const TlsHabits &habits)
    : context_{new_context()}, habits_{habits} {
    assert_non_null(context_);
    if (habits_.old_version) {
        assert_int_equal(SSL_CTX_set_max_proto_version(context_, TLS1_2_VERSION), 1);
    }
    if (habits_.certify) {
        habits_.certify(context_);
    } else if (habits_.no_key) {
        certify(context_);
    } else {
        SSL_CTX_set_psk_use_session_callback(context_, use_key);
        SSL_CTX_set_psk_find_session_callback(context_, find_key);
    }
    ssl_ = SSL_new(context_);
    assert_non_null(ssl_);
    assert_int_equal(SSL_set_app_data(ssl_, &habits_), 1);
    assert_int_equal(setsockopt(peer.socket(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(SSL_set_fd(ssl_, peer.socket()), 1);
    if (client) {
        SSL_set_connect_state(ssl_);
    } else {
        SSL_set_accept_state(ssl_);
    }
}

TlsPeer::~TlsPeer() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
}

Bytes TlsPeer::flight() {
    BIO *const kept = BIO_new(BIO_s_mem());
    assert_non_null(kept);
    SSL_set0_wbio(ssl_, kept);
    const int socket = SSL_get_fd(ssl_);
    const int flags = fcntl(socket, F_GETFL);
    assert_int_equal(fcntl(socket, F_SETFL, flags | O_NONBLOCK), 0);
    while (BIO_pending(kept) == 0) {
        if (SSL_do_handshake(ssl_) != 1 && BIO_pending(kept) == 0) {
            pollfd bytes{.fd = socket, .events = POLLIN, .revents = 0};
            assert_int_equal(poll(&bytes, 1, static_cast<int>(patience.tv_sec) * 1000), 1);
        }
    }
    assert_int_equal(fcntl(socket, F_SETFL, flags), 0);
    Bytes bytes(static_cast<std::size_t>(BIO_pending(kept)));
    assert_int_equal(BIO_read(kept, bytes.data(), static_cast<int>(bytes.size())), bytes.size());
    return bytes;
}

bool TlsPeer::shake() {
    return SSL_do_handshake(ssl_) == 1;
}

bool TlsPeer::is_refused() {
    std::array<std::byte, 1> byte{};
    return SSL_read(ssl_, byte.data(), byte.size()) <= 0;
}

std::string TlsPeer::name_of_peer() const {
    X509 *const shown = SSL_get1_peer_certificate(ssl_);
    assert_non_null(shown);
    std::array<char, 64> name{};
    assert_true(X509_NAME_get_text_by_NID(X509_get_subject_name(shown), NID_commonName, name.data(),
                                          static_cast<int>(name.size())) > 0);
    X509_free(shown);
    return name.data();
}

void TlsPeer::end() {
    assert_int_equal(SSL_shutdown(ssl_), 0);
}

void TlsPeer::send(std::span<const std::byte> bytes) {
    assert_int_equal(SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())), bytes.size());
}

Bytes TlsPeer::receive(std::size_t size) {
    Bytes bytes(size);
    for (std::size_t got = 0; got < size;) {
        const int count = SSL_read(ssl_, bytes.data() + got, static_cast<int>(size - got));
        assert_true(count > 0);
        got += static_cast<std::size_t>(count);
    }
    return bytes;
}

}  // namespace test
