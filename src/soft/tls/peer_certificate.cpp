// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/peer_certificate.hpp"

#include <netinet/in.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "soft/tls/openssl.hpp"
#include "soft/tls/tls_certificates.hpp"

namespace soft {

namespace {

std::optional<std::time_t> time_of(const ASN1_TIME *time) {
    std::tm parts{};
    if (time == nullptr || OpenSsl::found().ASN1_TIME_to_tm(time, &parts) != 1) {
        return std::nullopt;
    }
    return timegm(&parts);
}

}  // namespace

std::vector<std::string> PeerCertificate::names() const {
    const OpenSsl &openssl = OpenSsl::found();
    std::vector<std::string> found;
    const OpenSslPointer<GENERAL_NAMES, &OpenSsl::GENERAL_NAMES_free> all{static_cast<GENERAL_NAMES *>(
        openssl.X509_get_ext_d2i(certificate_, NID_subject_alt_name, nullptr, nullptr))};
    const auto *const stack = reinterpret_cast<const OPENSSL_STACK *>(all.get());
    for (int place = 0; place < openssl.OPENSSL_sk_num(stack); ++place) {
        const auto &one = *static_cast<const GENERAL_NAME *>(openssl.OPENSSL_sk_value(stack, place));
        if (one.type != GEN_DNS) {
            continue;
        }
        const std::string_view text{
            reinterpret_cast<const char *>(openssl.ASN1_STRING_get0_data(one.d.dNSName)),
            static_cast<std::size_t>(openssl.ASN1_STRING_length(one.d.dNSName))};
        if (std::string name = TlsCertificates::name_of(text); !name.empty()) {
            found.push_back(std::move(name));
        }
    }
    return found;
}

bool PeerCertificate::has_address(const sockaddr_storage &address) const {
    std::array<unsigned char, sizeof(in6_addr)> bytes{};
    std::size_t size = 0;
    if (address.ss_family == AF_INET) {
        sockaddr_in four{};
        std::memcpy(&four, &address, sizeof(four));
        size = sizeof(four.sin_addr);
        std::memcpy(bytes.data(), &four.sin_addr, size);
    } else if (address.ss_family == AF_INET6) {
        sockaddr_in6 six{};
        std::memcpy(&six, &address, sizeof(six));
        size = sizeof(six.sin6_addr);
        std::memcpy(bytes.data(), &six.sin6_addr, size);
    }
    return size != 0 && OpenSsl::found().X509_check_ip(certificate_, bytes.data(), size, 0) == 1;
}

bool PeerCertificate::is_for(TlsProof::Side side) const {
    const std::uint32_t purposes = OpenSsl::found().X509_get_extended_key_usage(certificate_);
    // Without the extension OpenSSL answers with all bits.
    const bool says_it = (OpenSsl::found().X509_get_extension_flags(certificate_) & EXFLAG_XKUSAGE) != 0;
    return says_it && (purposes & (side == TlsProof::Side::Client ? XKU_SSL_CLIENT : XKU_SSL_SERVER)) != 0;
}

std::optional<std::time_t> PeerCertificate::not_before() const {
    return time_of(OpenSsl::found().X509_get0_notBefore(certificate_));
}

std::optional<std::time_t> PeerCertificate::not_after() const {
    return time_of(OpenSsl::found().X509_get0_notAfter(certificate_));
}

TimeText::TimeText(std::optional<std::time_t> time) {
    std::tm parts{};
    if (!time || gmtime_r(&*time, &parts) == nullptr ||
        std::strftime(characters_.data(), characters_.size(), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) {
        (void)std::snprintf(characters_.data(), characters_.size(), "an unknown time");
    }
}

}  // namespace soft
