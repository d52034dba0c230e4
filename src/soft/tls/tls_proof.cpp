// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/tls_proof.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>

#include "soft/tls/openssl.hpp"

namespace soft {

namespace {

constexpr int place_of_proof = 0;  // in the object of OpenSSL: its first place is the program's

// An external key goes with one hash, which is SHA-256 unless both ends agree on another (RFC 8446
// section 4.2.11).
constexpr const char *ciphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char *groups = "X25519:P-256";

constexpr std::uint64_t options = SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION;

constexpr std::size_t most_readable = 64;

}  // namespace

void TlsProof::fail_with(int error, const char *format, ...) {
    error_ = error;
    va_list arguments;
    va_start(arguments, format);
    (void)std::vsnprintf(text_.data(), text_.size(), format, arguments);
    va_end(arguments);
}

void TlsProof::fail_without_files(int error) {
    fail_with(error, "the files of TLS cannot be used: %s (%s)", std::strerror(error), file());
}

void TlsProof::fail_without_openssl() {
    fail_with(EPROTONOSUPPORT, "there is no OpenSSL 3 that can do TLS 1.3 here");
}

TlsProof &TlsProof::of(const SSL *ssl) {
    return *static_cast<TlsProof *>(OpenSsl::found().SSL_get_ex_data(ssl, place_of_proof));
}

std::unique_ptr<SSL, SslFree> TlsProof::object_of(SSL_CTX *context) {
    const OpenSsl &openssl = OpenSsl::found();
    std::unique_ptr<SSL, SslFree> ssl{openssl.SSL_new(context)};
    if (!ssl || openssl.SSL_set_ex_data(ssl.get(), place_of_proof, this) != 1) {
        throw std::bad_alloc{};
    }
    if (side_ == Side::Client) {
        openssl.SSL_set_connect_state(ssl.get());
    } else {
        openssl.SSL_set_accept_state(ssl.get());
    }
    return ssl;
}

SSL_CTX *new_tls_context() {
    const OpenSsl &openssl = OpenSsl::found();
    SSL_CTX *const one = openssl.SSL_CTX_new(openssl.TLS_method());
    if (one == nullptr) {
        return nullptr;
    }
    (void)openssl.SSL_CTX_set_options(one, options);
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

bool is_one_of(int reason, std::initializer_list<int> reasons) {
    return std::ranges::find(reasons, reason) != reasons.end();
}

int reason_of_alert(int description) {
    return SSL_AD_REASON_OFFSET + description;
}

std::string readable(std::string_view text) {
    std::string words{text.substr(0, most_readable)};
    std::ranges::replace_if(words, [](char one) { return one <= ' ' || one >= 0x7F; }, '?');
    return words;
}

}  // namespace soft
