// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/own_certificates.hpp"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "soft/tls/openssl.hpp"
#include "soft/tls/peer_certificate.hpp"
#include "soft/tls/tls_file.hpp"
#include "soft/tls/tls_proof.hpp"

namespace soft {

namespace {

// These say how one kind of object in a PEM file is read and freed.
struct Certificate {
    using Pointer = CertificatePointer;
    static constexpr bool is_single = false;
    static constexpr const char *name = "certificate";
    static Pointer read(BIO *bio, pem_password_cb *ask) {
        return Pointer{OpenSsl::found().PEM_read_bio_X509(bio, nullptr, ask, nullptr)};
    }
};
struct RevocationList {
    using Pointer = OpenSslPointer<X509_CRL, &OpenSsl::X509_CRL_free>;
    static constexpr bool is_single = false;
    static constexpr const char *name = "list of revoked certificates (X509 CRL)";
    static Pointer read(BIO *bio, pem_password_cb *ask) {
        return Pointer{OpenSsl::found().PEM_read_bio_X509_CRL(bio, nullptr, ask, nullptr)};
    }
};
struct PrivateKey {
    using Pointer = OpenSslPointer<EVP_PKEY, &OpenSsl::EVP_PKEY_free>;
    static constexpr bool is_single = true;  // the first one counts
    static constexpr const char *name = "private key without a passphrase";
    static Pointer read(BIO *bio, pem_password_cb *ask) {
        return Pointer{OpenSsl::found().PEM_read_bio_PrivateKey(bio, nullptr, ask, nullptr)};
    }
};

// There is nobody to ask.
int no_passphrase(char *, int, int, void *) {
    return -1;
}

int last_reason() {
    return ERR_GET_REASON(OpenSsl::found().ERR_peek_last_error());
}

base::Result<void> refused(const std::string &file, const char *why) {
    BASE_LOG_PEER(Error, "TLS: %s: %s: no connection is made", file.c_str(), why);
    return base::failure(EINVAL);
}

// Calls use() with each object of that kind in a PEM file, until it fails. Objects of other kinds do not
// count.
template <class Kind>
base::Result<void> for_each(const std::string &file, Readers readers, const auto &use) {
    const OpenSsl &openssl = OpenSsl::found();
    SecretText all;
    if (const auto got = read_tls_file(file.c_str(), readers, all); !got) {
        return got;
    }
    openssl.ERR_clear_error();
    const OpenSslPointer<BIO, &OpenSsl::BIO_free> bio{
        openssl.BIO_new_mem_buf(all.text.data(), static_cast<int>(all.text.size()))};
    if (!bio) {
        throw std::bad_alloc{};
    }
    unsigned number = 1;
    for (;; ++number) {
        const typename Kind::Pointer one = Kind::read(bio.get(), no_passphrase);
        if (!one) {
            break;
        }
        if (const auto used = use(*one); !used || Kind::is_single) {
            return used;
        }
    }
    if (last_reason() == ERR_R_MALLOC_FAILURE) {
        throw std::bad_alloc{};
    }
    if (number == 1 || last_reason() != PEM_R_NO_START_LINE) {
        BASE_LOG_PEER(Error, "TLS: %s: number %u is no valid %s in PEM: no connection is made", file.c_str(),
                      number, Kind::name);
        return base::failure(EINVAL);
    }
    openssl.ERR_clear_error();
    return {};
}

}  // namespace

OwnCertificates::~OwnCertificates() {
    if (context_ != nullptr) {
        const OpenSslErrors own;
        OpenSsl::found().SSL_CTX_free(context_);
    }
}

base::Result<void> OwnCertificates::load() {
    const OpenSsl &openssl = OpenSsl::found();
    context_ = new_tls_context();
    if (context_ == nullptr) {
        throw std::bad_alloc{};
    }
    openssl.SSL_CTX_set_security_level(context_, security_level);
    // A peer gets the certificates of the file, and no others that happen to be known here.
    (void)openssl.SSL_CTX_ctrl(context_, SSL_CTRL_MODE, SSL_MODE_NO_AUTO_CHAIN, nullptr);
    if (auto got = load_authorities(); !got) {
        return got;
    }
    if (auto got = load_certificate(); !got) {
        return got;
    }
    return load_key();
}

base::Result<void> OwnCertificates::load_authorities() {
    const OpenSsl &openssl = OpenSsl::found();
    X509_STORE *const store = openssl.SSL_CTX_get_cert_store(context_);
    const auto checked = [](int result) {
        if (result != 1) {
            throw std::bad_alloc{};
        }
        return base::Result<void>{};
    };
    for (const std::string &file : files_.authorities) {
        const auto add = [&](X509 &one) { return checked(openssl.X509_STORE_add_cert(store, &one)); };
        if (auto got = for_each<Certificate>(file, Readers::Everybody, add); !got) {
            return got;
        }
    }
    for (const std::string &file : files_.revocations) {
        const auto add = [&](X509_CRL &one) { return checked(openssl.X509_STORE_add_crl(store, &one)); };
        if (auto got = for_each<RevocationList>(file, Readers::Everybody, add); !got) {
            return got;
        }
    }
    return files_.revocations.empty() ? base::Result<void>{}
                                      : checked(openssl.X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK));
}

base::Result<void> OwnCertificates::load_certificate() {
    const OpenSsl &openssl = OpenSsl::found();
    const std::string &file = files_.certificate;
    bool is_first = true;
    const auto take = [&](X509 &one) -> base::Result<void> {
        if (!std::exchange(is_first, false)) {
            return openssl.SSL_CTX_ctrl(context_, SSL_CTRL_CHAIN_CERT, 1, &one) == 1
                       ? base::Result<void>{}
                       : refused(file,
                                 "OpenSSL does not take a certificate behind the first (expected keys "
                                 "of 112 bits of strength)");
        }
        return openssl.SSL_CTX_use_certificate(context_, &one) == 1
                   ? learn(one)
                   : refused(file,
                             "OpenSSL does not take the certificate (expected a key of 112 bits of "
                             "strength, as RSA of 2048 bits or P-256 have)");
    };
    return for_each<Certificate>(file, Readers::Everybody, take);
}

// Notes what this host's certificate says.
base::Result<void> OwnCertificates::learn(X509 &certificate) {
    const PeerCertificate own{&certificate};
    const auto names = own.names();
    if (names.empty()) {
        return refused(files_.certificate, "expected a name of DNS in the certificate (subjectAltName)");
    }
    identity_ = names.front();
    not_before_ = own.not_before();
    not_after_ = own.not_after();
    if (not_after_ && *not_after_ < std::time(nullptr)) {
        BASE_LOG_PEER(Warning, "TLS: %s: the certificate expired on %s", files_.certificate.c_str(),
                      TimeText{not_after_}.c_str());
    }
    return {};
}

base::Result<void> OwnCertificates::load_key() {
    const OpenSsl &openssl = OpenSsl::found();
    const auto use = [&](EVP_PKEY &key) -> base::Result<void> {
        if (openssl.SSL_CTX_use_PrivateKey(context_, &key) == 1 &&
            openssl.SSL_CTX_check_private_key(context_) == 1) {
            return {};
        }
        BASE_LOG_PEER(Error, "TLS: %s: expected the private key of %s: no connection is made",
                      files_.key.c_str(), files_.certificate.c_str());
        return base::failure(EINVAL);
    };
    return for_each<PrivateKey>(files_.key, Readers::Owner, use);
}

// ---- the certificates of now ----

namespace {

// Threads of the device may still need it while the process ends.
base::LastingMutex lock_of_kept;
const base::HeldWhileForking<lock_of_kept> kept_survive_forks{base::ForkLevel::SoftGround};

// It keeps the certificates that a file named when it was read last, and the states that the files had
// before.
struct Kept {
    struct File {
        std::string name;
        FileStamp stamp;
    };

    [[nodiscard]] bool is_current() const {
        return made != nullptr && std::ranges::all_of(files, [](const File &one) {
                   return one.stamp == FileStamp::of(one.name.c_str());
               });
    }
    void note(const std::string &name) { files.push_back({name, FileStamp::of(name.c_str())}); }

    std::shared_ptr<const OwnCertificates> made;
    std::vector<File> files;
};

}  // namespace

base::Result<std::shared_ptr<const OwnCertificates>> OwnCertificates::current(const char *file) {
    static auto &all = *new std::map<std::string, Kept, std::less<>>;
    const base::Lock lock{lock_of_kept};
    const auto place = all.find(std::string_view{file});
    Kept &kept = place != all.end() ? place->second : all[file];
    if (kept.is_current()) {
        return kept.made;
    }
    kept.made.reset();
    kept.files.clear();
    kept.note(file);
    auto names = TlsCertificates::read(file);
    if (!names) {
        return std::unexpected{names.error()};
    }
    for (const auto *const list : {&names->authorities, &names->revocations}) {
        std::ranges::for_each(*list, [&kept](const std::string &name) { kept.note(name); });
    }
    kept.note(names->certificate);
    kept.note(names->key);
    // A file that changed just now may change once more without another stamp.
    const bool settled =
        std::ranges::all_of(kept.files, [](const Kept::File &one) { return one.stamp.is_settled(); });
    auto made = std::make_shared<OwnCertificates>(std::move(*names));
    if (const auto loaded = made->load(); !loaded) {
        return std::unexpected{loaded.error()};
    }
    if (settled) {
        kept.made = made;
    }
    return made;
}

}  // namespace soft
