// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "certificates.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace test {

namespace {

void require(bool is_right, const char *what) {
    if (!is_right) {
        (void)std::fprintf(stderr, "certificates: %s failed\n", what);
        std::abort();
    }
}

void extend(X509 *certificate, X509 *issuer, int number, const std::string &value) {
    if (value.empty()) {
        return;
    }
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    X509_EXTENSION *const extension = X509V3_EXT_conf_nid(nullptr, &context, number, value.c_str());
    require(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1, value.c_str());
    X509_EXTENSION_free(extension);
}

struct FileClose {
    void operator()(std::FILE *file) const { require(std::fclose(file) == 0, "fclose"); }
};
using File = std::unique_ptr<std::FILE, FileClose>;

File create(const std::filesystem::path &path, mode_t mode) {
    std::filesystem::remove(path);
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    require(fd >= 0, path.c_str());
    return File{fdopen(fd, "w")};
}

}  // namespace

void CertificateFree::operator()(X509 *one) const {
    X509_free(one);
}
void CertificateFree::operator()(EVP_PKEY *one) const {
    EVP_PKEY_free(one);
}
void CertificateFree::operator()(X509_CRL *one) const {
    X509_CRL_free(one);
}

Issued issue(const CertificateWish &wish, const Issued *issuer) {
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);  // as new_context() in shared_key.hpp
    Issued made{.certificate = CertificatePointer{X509_new()}, .key = KeyPointer{EVP_EC_gen("P-256")}};
    X509 *const one = made.certificate.get();
    require(one != nullptr && made.key != nullptr, "a key");
    X509 *const above = issuer != nullptr ? issuer->certificate.get() : one;
    EVP_PKEY *const signer = issuer != nullptr ? issuer->key.get() : made.key.get();
    long number = 0;
    require(RAND_bytes(reinterpret_cast<unsigned char *>(&number), sizeof(number)) == 1, "a number");
    require(X509_set_version(one, X509_VERSION_3) == 1, "the version");
    require(ASN1_INTEGER_set(X509_get_serialNumber(one), number & 0x7fffffff) == 1, "the number");
    require(X509_NAME_add_entry_by_txt(X509_get_subject_name(one), "CN", MBSTRING_ASC,
                                       reinterpret_cast<const unsigned char *>(wish.name.c_str()), -1, -1,
                                       0) == 1,
            "the subject");
    require(X509_set_issuer_name(one, X509_get_subject_name(above)) == 1, "the issuer");
    require(X509_gmtime_adj(X509_getm_notBefore(one), wish.begins) != nullptr, "the beginning");
    require(X509_gmtime_adj(X509_getm_notAfter(one), wish.ends) != nullptr, "the end");
    require(X509_set_pubkey(one, made.key.get()) == 1, "the public key");
    extend(one, above, NID_basic_constraints, wish.constraints);
    extend(one, above, NID_subject_alt_name, wish.others);
    extend(one, above, NID_ext_key_usage, wish.purposes);
    require(X509_sign(one, signer, EVP_sha256()) > 0, "the signature");
    return made;
}

Issued make_authority(const std::string &name, const Issued *issuer) {
    constexpr long ten_years = 315'360'000;
    return issue(
        {.name = name, .others = "", .purposes = "", .constraints = "critical,CA:TRUE", .ends = ten_years},
        issuer);
}

RevocationsPointer revoke(const Issued &issuer, const std::vector<const X509 *> &revoked) {
    RevocationsPointer list{X509_CRL_new()};
    require(list != nullptr && X509_CRL_set_version(list.get(), X509_CRL_VERSION_2) == 1, "a list");
    require(X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(issuer.certificate.get())) == 1,
            "its issuer");
    ASN1_TIME *const begin = X509_gmtime_adj(nullptr, -60);
    ASN1_TIME *const end = X509_gmtime_adj(nullptr, 3600);
    require(X509_CRL_set1_lastUpdate(list.get(), begin) == 1, "its beginning");
    require(X509_CRL_set1_nextUpdate(list.get(), end) == 1, "its end");
    for (const X509 *const one : revoked) {
        X509_REVOKED *const entry = X509_REVOKED_new();
        auto *const number = const_cast<ASN1_INTEGER *>(X509_get0_serialNumber(one));
        require(entry != nullptr && X509_REVOKED_set_serialNumber(entry, number) == 1 &&
                    X509_REVOKED_set_revocationDate(entry, begin) == 1 &&
                    X509_CRL_add0_revoked(list.get(), entry) == 1,
                "an entry");
    }
    ASN1_TIME_free(begin);
    ASN1_TIME_free(end);
    require(X509_CRL_sign(list.get(), issuer.key.get(), EVP_sha256()) > 0, "the signature of a list");
    return list;
}

void write_certificates(const std::filesystem::path &file, const std::vector<const X509 *> &certificates) {
    const File to = create(file, 0644);
    for (const X509 *const one : certificates) {
        require(PEM_write_X509(to.get(), one) == 1, file.c_str());
    }
}

void write_key(const std::filesystem::path &file, const EVP_PKEY &key) {
    require(PEM_write_PrivateKey(create(file, 0600).get(), &key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
            file.c_str());
}

void write_revocations(const std::filesystem::path &file, const X509_CRL &revocations) {
    require(PEM_write_X509_CRL(create(file, 0644).get(), &revocations) == 1, file.c_str());
}

Issued read_issued(const std::filesystem::path &certificate, const std::filesystem::path &key) {
    const File first{std::fopen(certificate.c_str(), "re")};
    const File second{std::fopen(key.c_str(), "re")};
    require(first != nullptr && second != nullptr, certificate.c_str());
    Issued issued{.certificate = CertificatePointer{PEM_read_X509(first.get(), nullptr, nullptr, nullptr)},
                  .key = KeyPointer{PEM_read_PrivateKey(second.get(), nullptr, nullptr, nullptr)}};
    require(issued.certificate != nullptr && issued.key != nullptr, certificate.c_str());
    return issued;
}

}  // namespace test
