// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/certificate_proof.hpp"

#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "soft/tls/openssl.hpp"
#include "soft/tls/peer_certificate.hpp"
#include "soft/tls/tls_reading.hpp"

namespace soft {

namespace {

// These limit the certificates between a host's own and its CA, and the bytes of all that a peer sends.
constexpr int most_between = 3;
constexpr long most_chain_bytes = 16384;

}  // namespace

struct CertificateProof::Callbacks {
    static CertificateProof &of(const SSL *ssl) { return static_cast<CertificateProof &>(TlsProof::of(ssl)); }

    // Gives a server its certificate. OpenSSL has read a whole ClientHello of TLS 1.3 before.
    static int use(SSL *ssl, void *) {
        CertificateProof &proof = of(ssl);
        try {
            return proof.read_own() && OpenSsl::found().SSL_set_SSL_CTX(ssl, proof.own_->context()) != nullptr
                       ? 1
                       : 0;
        } catch (const std::bad_alloc &) {
            proof.fail_without_files(ENOMEM);
            return 0;
        }
    }

    // Looks at the peer's certificate, when OpenSSL is content with it, and notes why OpenSSL is not.
    static int check(int is_right, X509_STORE_CTX *chain) {
        const OpenSsl &openssl = OpenSsl::found();
        CertificateProof &proof = of(static_cast<const SSL *>(
            openssl.X509_STORE_CTX_get_ex_data(chain, openssl.SSL_get_ex_data_X509_STORE_CTX_idx())));
        const int depth = openssl.X509_STORE_CTX_get_error_depth(chain);
        X509 *const certificate = openssl.X509_STORE_CTX_get_current_cert(chain);
        try {
            if (is_right == 0) {
                proof.refuse(openssl.X509_STORE_CTX_get_error(chain), depth, certificate,
                             openssl.X509_STORE_CTX_get0_cert(chain));
                return 0;
            }
            const int error = depth == 0 ? proof.check(certificate) : X509_V_OK;
            if (depth == 0 && error == X509_V_OK) {
                proof.keep(chain);
            } else if (error != X509_V_OK) {
                openssl.X509_STORE_CTX_set_error(chain, error);
            }
            return error == X509_V_OK ? 1 : 0;
        } catch (const std::bad_alloc &) {
            proof.fail_without_files(ENOMEM);
            openssl.X509_STORE_CTX_set_error(chain, X509_V_ERR_OUT_OF_MEM);
            return 0;
        }
    }

    // Returns the context of a server that has no certificate yet. It lasts as long as the process. nullptr:
    // OpenSSL cannot do it.
    static SSL_CTX *context() {
        constexpr auto make = [] {
            SSL_CTX *const one = new_tls_context();
            if (one != nullptr) {
                OpenSsl::found().SSL_CTX_set_cert_cb(one, use, nullptr);
            }
            return one;
        };
        return made_once<make>();
    }
};

bool CertificateProof::read_own() {
    auto own = OwnCertificates::current(file());
    if (!own) {
        fail_without_files(own.error().number);
        return false;
    }
    own_ = std::move(*own);
    return true;
}

std::unique_ptr<SSL, SslFree> CertificateProof::make() {
    const OpenSsl &openssl = OpenSsl::found();
    if (side_ == Side::Client) {
        if (!read_own()) {
            return nullptr;
        }
        identity_ = own_->identity();
    } else if (Callbacks::context() == nullptr) {
        fail_without_openssl();
        return nullptr;
    }
    auto ssl = object_of(side_ == Side::Client ? own_->context() : Callbacks::context());
    openssl.SSL_set_verify(ssl.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, Callbacks::check);
    openssl.SSL_set_verify_depth(ssl.get(), most_between);
    (void)openssl.SSL_ctrl(ssl.get(), SSL_CTRL_SET_MAX_CERT_LIST, most_chain_bytes, nullptr);
    return ssl;
}

bool CertificateProof::is_proved(const TlsSession &) {
    if (shown_ == nullptr) {
        fail_with(EACCES, "%s has shown no certificate", peer());
    }
    return shown_ != nullptr;
}

base::Result<bool> CertificateProof::still_holds(TlsReading &files) {
    const OpenSsl &openssl = OpenSsl::found();
    auto own = files.certificates(file());
    if (!own) {
        return std::unexpected{own.error()};
    }
    own_ = std::move(*own);
    const OpenSslPointer<X509_STORE_CTX, &OpenSsl::X509_STORE_CTX_free> chain{openssl.X509_STORE_CTX_new()};
    if (!chain ||
        openssl.X509_STORE_CTX_init(chain.get(), openssl.SSL_CTX_get_cert_store(own_->context()),
                                    shown_.get(), shown_with_.get()) != 1 ||
        openssl.X509_STORE_CTX_set_default(chain.get(),
                                           side_ == Side::Server ? "ssl_client" : "ssl_server") != 1) {
        throw std::bad_alloc{};
    }
    openssl.X509_STORE_CTX_set_depth(chain.get(), most_between);
    openssl.X509_VERIFY_PARAM_set_auth_level(openssl.X509_STORE_CTX_get0_param(chain.get()),
                                             OwnCertificates::security_level);
    if (openssl.X509_verify_cert(chain.get()) == 1) {
        return check(shown_.get()) == X509_V_OK;
    }
    const int why = openssl.X509_STORE_CTX_get_error(chain.get());
    if (why == X509_V_ERR_OUT_OF_MEM || why == X509_V_ERR_UNSPECIFIED) {
        throw std::bad_alloc{};
    }
    refuse(why, openssl.X509_STORE_CTX_get_error_depth(chain.get()),
           openssl.X509_STORE_CTX_get_current_cert(chain.get()), shown_.get());
    return false;
}

// ---- the peer's certificate ----

void CertificateProof::ChainFree::operator()(STACK_OF(X509) * chain) const {
    OpenSsl::found().OPENSSL_sk_pop_free(reinterpret_cast<OPENSSL_STACK *>(chain), [](void *one) {
        OpenSsl::found().X509_free(static_cast<X509 *>(one));
    });
}

void CertificateProof::keep(X509_STORE_CTX *chain) {
    const OpenSsl &openssl = OpenSsl::found();
    shown_with_.reset(openssl.X509_chain_up_ref(openssl.X509_STORE_CTX_get0_untrusted(chain)));
    X509 *const shown = openssl.X509_STORE_CTX_get0_cert(chain);
    if (shown_with_ == nullptr || openssl.X509_up_ref(shown) != 1) {
        throw std::bad_alloc{};
    }
    shown_.reset(shown);
}

int CertificateProof::check(X509 *certificate) {
    const PeerCertificate shown{certificate};
    const auto names = shown.names();
    const TlsCertificates &files = own_->files();
    if (!shown.is_for(other())) {
        refuse(X509_V_ERR_INVALID_PURPOSE, 0, certificate, certificate);
        return X509_V_ERR_INVALID_PURPOSE;
    }
    if (names.empty()) {
        fail_with(EACCES, "the certificate of %s has no name of DNS (expected one as subjectAltName)",
                  peer());
        return X509_V_ERR_HOSTNAME_MISMATCH;
    }
    if (side_ == Side::Client) {
        if (const int error = check_server(certificate, names); error != X509_V_OK) {
            return error;
        }
    } else {
        if (!files.clients.empty() &&
            std::ranges::find(files.clients, names.front()) == files.clients.end()) {
            fail_with(EACCES, "the client %s is not let in (expected a line \"client %s\" in %s)",
                      readable(names.front()).c_str(), readable(names.front()).c_str(), files.file.c_str());
            return X509_V_ERR_HOSTNAME_MISMATCH;
        }
        if (identity_.empty()) {  // a later check finds the same, and other threads may read it then
            identity_ = names.front();
        }
    }
    return X509_V_OK;
}

int CertificateProof::check_server(X509 *certificate, const std::vector<std::string> &names) {
    const TlsCertificates &files = own_->files();
    const std::string name = readable(names.front());
    if (!files.servers.empty()) {
        const auto is_listed = [&](const std::string &one) {
            return std::ranges::find(files.servers, one) != files.servers.end();
        };
        if (std::ranges::any_of(names, is_listed)) {
            return X509_V_OK;
        }
        fail_with(EACCES, "the server is %s, which is not wanted (expected a line \"server %s\" in %s)",
                  name.c_str(), name.c_str(), files.file.c_str());
        return X509_V_ERR_HOSTNAME_MISMATCH;
    }
    if (PeerCertificate{certificate}.has_address(address_)) {
        return X509_V_OK;
    }
    fail_with(EACCES,
              "the certificate of the server %s does not have its address (expected it as subjectAltName, or "
              "a line \"server %s\" in %s)",
              name.c_str(), name.c_str(), files.file.c_str());
    return X509_V_ERR_IP_ADDRESS_MISMATCH;
}

void CertificateProof::refuse(int error, int depth, X509 *certificate, X509 *own) {
    const PeerCertificate shown{certificate};
    const auto names = PeerCertificate{own}.names();
    const std::string name = names.empty() ? "" : " " + readable(names.front());
    const char *const of_ca = depth != 0 ? "the CA above " : "";
    const char *const file = own_->files().file.c_str();
    switch (error) {
        case X509_V_ERR_CERT_HAS_EXPIRED:
            return fail_with(EACCES, "the certificate of %s%s%s expired on %s", of_ca, peer(), name.c_str(),
                             TimeText{shown.not_after()}.c_str());
        case X509_V_ERR_CERT_NOT_YET_VALID:
            return fail_with(EACCES, "the certificate of %s%s%s is not valid before %s", of_ca, peer(),
                             name.c_str(), TimeText{shown.not_before()}.c_str());
        case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
            return fail_with(EACCES, "the certificate of %s%s is self-signed, and not issued by the CA of %s",
                             peer(), name.c_str(), file);
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
        case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        case X509_V_ERR_CERT_SIGNATURE_FAILURE:
            return fail_with(EACCES, "the certificate of %s%s is not issued by the CA of %s", peer(),
                             name.c_str(), file);
        case X509_V_ERR_INVALID_PURPOSE:
            return fail_with(EACCES,
                             "the certificate of %s%s%s is not for %ss (expected the extendedKeyUsage %s)",
                             of_ca, peer(), name.c_str(), peer() + sizeof("the"), purpose_of(other()));
        case X509_V_ERR_CERT_REVOKED:
            return fail_with(EACCES, "the certificate of %s%s%s is revoked", of_ca, peer(), name.c_str());
        case X509_V_ERR_CERT_CHAIN_TOO_LONG:
            return fail_with(EACCES, "the certificate of %s%s has more than %d others up to its CA", peer(),
                             name.c_str(), most_between);
        default:
            return fail_with(EACCES, "the certificate of %s%s%s is refused: %s", of_ca, peer(), name.c_str(),
                             OpenSsl::found().X509_verify_cert_error_string(error));
    }
}

// ---- the peer's refusal ----

bool CertificateProof::explain(int reason) {
    if (reason >= SSL_AD_REASON_OFFSET) {
        explain_alert(reason - SSL_AD_REASON_OFFSET);
    } else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
        fail_with(EACCES, "the client has shown no certificate");
    } else if (reason == SSL_R_EXCESSIVE_MESSAGE_SIZE) {
        fail_with(EACCES, "the certificates of %s have more than %ld bytes", peer(), most_chain_bytes);
    }
    return error() != 0;
}

void CertificateProof::explain_alert(int alert) {
    const char *const file = own_ != nullptr ? own_->files().certificate.c_str() : "none";
    const auto refused = [&](const char *why, const char *detail) {
        fail_with(EACCES, "%s refuses the certificate %s: %s%s", peer(), file, why, detail);
    };
    const std::time_t now = std::time(nullptr);
    const auto begin = own_ != nullptr ? own_->not_before() : std::nullopt;
    const auto end = own_ != nullptr ? own_->not_after() : std::nullopt;
    switch (alert) {
        case SSL_AD_CERTIFICATE_EXPIRED:
            return end && *end < now ? refused("it expired on ", TimeText{end}.c_str())
                                     : refused("it has expired by the clock there; here it ends on ",
                                               TimeText{end}.c_str());
        case SSL_AD_UNKNOWN_CA:
            return refused("it is not issued by a CA that is trusted there", "");
        case SSL_AD_UNSUPPORTED_CERTIFICATE:
            return refused("it is not for this side; expected the extendedKeyUsage ", purpose_of(side_));
        case SSL_AD_CERTIFICATE_REVOKED:
            return refused("it is revoked", "");
        case SSL_AD_BAD_CERTIFICATE:
            return begin && *begin > now ? refused("it is not valid before ", TimeText{begin}.c_str())
                                         : refused(
                                               "it has not the name or the address that is expected "
                                               "there; its name is ",
                                               own_ != nullptr ? own_->identity().c_str() : "none");
        case SSL_AD_CERTIFICATE_REQUIRED:
            return fail_with(EACCES, "%s has got no certificate from this host", peer());
        case SSL_AD_HANDSHAKE_FAILURE:
            return fail_with(EACCES,
                             "%s and this host have no way to authenticate each other: it may use a "
                             "key (psk:FILE), and not certificates",
                             peer());
        default:
            return;
    }
}

}  // namespace soft
