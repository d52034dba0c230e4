// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/openssl: the functions of OpenSSL that the device calls. They are looked up when the first
// connection needs TLS. So a program without TLS loads no OpenSSL, and one that has an OpenSSL of its own, of
// any version, does not meet ours.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.hpp"

namespace soft {

// clang-format off
#define SOFT_OPENSSL_FUNCTIONS(name) \
    name(ASN1_STRING_get0_data) name(ASN1_STRING_length) name(ASN1_TIME_to_tm) name(BIO_clear_flags) \
    name(BIO_free) name(BIO_get_data) name(BIO_get_new_index) name(BIO_meth_new) name(BIO_meth_set_ctrl) \
    name(BIO_meth_set_read_ex) name(BIO_meth_set_write_ex) name(BIO_new) name(BIO_new_mem_buf) \
    name(BIO_set_data) name(BIO_set_flags) name(BIO_set_init) name(ERR_clear_error) name(ERR_get_error_all) \
    name(ERR_new) name(ERR_peek_error) name(ERR_peek_last_error) name(ERR_reason_error_string) name(ERR_set_debug) name(ERR_set_error) \
    name(EVP_PKEY_free) name(GENERAL_NAMES_free) name(OPENSSL_init_ssl) name(OPENSSL_sk_num) \
    name(OPENSSL_sk_pop_free) name(OPENSSL_sk_value) name(PEM_read_bio_PrivateKey) name(PEM_read_bio_X509) \
    name(PEM_read_bio_X509_CRL) name(SSL_CIPHER_find) name(SSL_CTX_check_private_key) name(SSL_CTX_ctrl) \
    name(SSL_CTX_free) name(SSL_CTX_get_cert_store) name(SSL_CTX_new) name(SSL_CTX_set_cert_cb) \
    name(SSL_CTX_set_ciphersuites) name(SSL_CTX_set_num_tickets) name(SSL_CTX_set_options) \
    name(SSL_CTX_set_psk_find_session_callback) name(SSL_CTX_set_psk_use_session_callback) \
    name(SSL_CTX_set_security_level) name(SSL_CTX_use_PrivateKey) name(SSL_CTX_use_certificate) \
    name(SSL_SESSION_free) name(SSL_SESSION_new) name(SSL_SESSION_set1_master_key) \
    name(SSL_SESSION_set_cipher) name(SSL_SESSION_set_protocol_version) name(SSL_alert_desc_string_long) \
    name(SSL_ctrl) name(SSL_do_handshake) name(SSL_export_keying_material) name(SSL_free) \
    name(SSL_get_error) name(SSL_get_ex_data) name(SSL_get_ex_data_X509_STORE_CTX_idx) name(SSL_key_update) \
    name(SSL_new) name(SSL_read_ex) \
    name(SSL_session_reused) name(SSL_set_SSL_CTX) name(SSL_set_accept_state) name(SSL_set_bio) \
    name(SSL_set_connect_state) name(SSL_set_ex_data) name(SSL_set_msg_callback) name(SSL_set_read_ahead) name(SSL_set_verify) \
    name(SSL_set_verify_depth) name(SSL_shutdown) name(SSL_write_ex) name(TLS_method) name(X509_CRL_free) \
    name(X509_STORE_CTX_free) name(X509_STORE_CTX_get0_cert) name(X509_STORE_CTX_get0_param) \
    name(X509_STORE_CTX_get0_untrusted) name(X509_STORE_CTX_get_current_cert) name(X509_STORE_CTX_get_error) \
    name(X509_STORE_CTX_get_error_depth) name(X509_STORE_CTX_get_ex_data) name(X509_STORE_CTX_init) \
    name(X509_STORE_CTX_new) name(X509_STORE_CTX_set_default) name(X509_STORE_CTX_set_depth) \
    name(X509_STORE_CTX_set_error) name(X509_STORE_add_cert) name(X509_STORE_add_crl) \
    name(X509_STORE_set_flags) name(X509_VERIFY_PARAM_set_auth_level) name(X509_chain_up_ref) \
    name(X509_check_ip) name(X509_free) name(X509_get0_notAfter) name(X509_get0_notBefore) \
    name(X509_get_ext_d2i) name(X509_get_extended_key_usage) name(X509_get_extension_flags) \
    name(X509_up_ref) name(X509_verify_cert) name(X509_verify_cert_error_string)
// clang-format on

// A fork waits for a thread that makes something, because the child does not have that thread. make() may use
// what was made before, and takes no lock but those of base.
extern base::LastingMutex lock_of_making;

// Returns what make() returns. The first call makes it, and it lasts as long as the process. When make()
// returns nullptr, because the process has too little of something, the next call tries again.
template <auto make>
[[nodiscard]] auto made_once() -> decltype(make()) {
    static constinit std::atomic<decltype(make())> made{nullptr};
    auto one = made.load(std::memory_order_acquire);
    if (one == nullptr) [[unlikely]] {
        const base::Lock lock{lock_of_making};
        one = made.load(std::memory_order_acquire);
        if (one == nullptr) {
            one = make();
            made.store(one, std::memory_order_release);
        }
    }
    return one;
}

struct OpenSsl {
// NOLINTNEXTLINE(bugprone-macro-parentheses): it declares a name.
#define SOFT_DECLARE(name) decltype(&::name) name = nullptr;
    SOFT_OPENSSL_FUNCTIONS(SOFT_DECLARE)
#undef SOFT_DECLARE

    // Returns nullptr, and logs why, when there is no OpenSSL 3, or it cannot be loaded now. The first call
    // loads it, and it stays loaded.
    [[nodiscard]] static const OpenSsl *find();
    // Returns the functions, which were found before.
    [[nodiscard]] static const OpenSsl &found() { return *find(); }
};

// Frees an object with that function of OpenSSL.
template <auto OpenSsl::*release>
struct OpenSslFree {
    void operator()(auto *object) const { (void)(OpenSsl::found().*release)(object); }
};

template <typename Object, auto OpenSsl::*release>
using OpenSslPointer = std::unique_ptr<Object, OpenSslFree<release>>;
using CertificatePointer = OpenSslPointer<X509, &OpenSsl::X509_free>;

// OpenSSL has a queue of errors for each thread. A program that uses the same OpenSSL looks there for its
// own errors, and takes any other for one. So the device keeps one of these during its calls of OpenSSL: they
// find the queue empty, and leave the program's errors there and no others.
class OpenSslErrors {
public:
    OpenSslErrors();
    OpenSslErrors(const OpenSslErrors &) = delete;
    OpenSslErrors &operator=(const OpenSslErrors &) = delete;
    ~OpenSslErrors();

private:
    struct Error {
        unsigned long code;
        int line;
        std::string file, function, data;
    };
    void put_aside();

    std::vector<Error> programs_;
};

}  // namespace soft
