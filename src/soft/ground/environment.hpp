// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/environment: the meaning of the environment variables that the device reads.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "base/result.hpp"
#include "base/tls.hpp"

namespace soft {

// Returns whether this value of SOFTRDMA_CRC, nullptr when it is not set, asks for CRC32C. Fails with EINVAL,
// and logs it, when the value is not valid.
[[nodiscard]] inline base::Result<bool> crc_asked_for(const char *value) {
    const std::string_view word{value != nullptr ? value : ""};
    if (!word.empty() && word != "0" && word != "1") {
        BASE_LOG(Error, "SOFTRDMA_CRC is \"%s\", expected 0 or 1: no device is opened", value);
        return base::failure(EINVAL);
    }
    return word == "1";
}

// Returns the meaning of SOFTRDMA_CRC at the first call. After a failure no device opens.
[[nodiscard]] inline const base::Result<bool> &crc_of_environment() {
    static const base::Result<bool> once = crc_asked_for(secure_getenv("SOFTRDMA_CRC"));
    return once;
}

// How connections within the host go: over TCP; through rings in memory; or through these, and the initiator
// writes and reads the target's memory itself.
enum class WithinHost : std::uint8_t { Tcp, Rings, Direct };

// Returns the meaning of this value of SOFTRDMA_SHM; nullptr when it is not set. Fails with EINVAL, and logs
// it, when the value is not valid.
[[nodiscard]] inline base::Result<WithinHost> within_host_asked_for(const char *value) {
    const std::string_view word{value != nullptr ? value : ""};
    if (word == "on") {
        return WithinHost::Direct;
    }
    if (word.empty() || word == "rings") {
        return WithinHost::Rings;
    }
    if (word == "off") {
        return WithinHost::Tcp;
    }
    BASE_LOG(Error, "SOFTRDMA_SHM is \"%s\", expected on, rings or off: no device is opened", value);
    return base::failure(EINVAL);
}

// Returns the meaning of SOFTRDMA_SHM at the first call. After a failure no device opens.
[[nodiscard]] inline const base::Result<WithinHost> &within_host_of_environment() {
    static const base::Result<WithinHost> once = within_host_asked_for(secure_getenv("SOFTRDMA_SHM"));
    return once;
}

// This is the meaning of RPMA_TLS: a connection uses TLS or not, and how its ends authenticate each other.
struct TlsAsked {
    enum class How : std::uint8_t { Not, Keys, Certificates };
    How how = How::Not;
    std::string file;  // of keys (psk:FILE), or one that names certificates (x509:FILE)
};

// Returns the meaning of this value of RPMA_TLS, nullptr when it is not set; without a name there is no TLS.
// Fails with EINVAL, and logs it, when the value is not valid. A program may go to another folder before a
// connection reads the file, so the name begins with a slash.
[[nodiscard]] inline base::Result<TlsAsked> tls_asked_for(const char *value) {
    constexpr std::string_view keys = "psk:";
    constexpr std::string_view certificates = "x509:";
    const std::string_view word{value != nullptr ? value : ""};
    if (word.empty()) {
        return TlsAsked{};
    }
    if (word.starts_with("psk:/")) {
        return TlsAsked{.how = TlsAsked::How::Keys, .file = std::string{word.substr(keys.size())}};
    }
    if (word.starts_with("x509:/")) {
        return TlsAsked{.how = TlsAsked::How::Certificates,
                        .file = std::string{word.substr(certificates.size())}};
    }
    BASE_LOG(Error,
             "RPMA_TLS is \"%s\", expected psk:FILE or x509:FILE, with the whole path of FILE: no device is "
             "opened",
             value);
    return base::failure(EINVAL);
}

// Returns the meaning of RPMA_TLS at the first call. After a failure no device opens. A process with raised
// privileges does not heed the variable; it opens no device either, because whoever set the variable expects
// TLS.
[[nodiscard]] inline const base::Result<TlsAsked> &tls_of_environment() {
    static const base::Result<TlsAsked> once = []() -> base::Result<TlsAsked> {
        const char *const value = secure_getenv("RPMA_TLS");
        if (value == nullptr && base::required_tls() != nullptr) {
            BASE_LOG(Error, "RPMA_TLS is set, and this process has raised privileges: no device is opened");
            return base::failure(EINVAL);
        }
        return tls_asked_for(value);
    }();
    return once;
}

// Returns whether connections use TLS and nothing else.
[[nodiscard]] inline bool tls_is_required() {
    const auto &asked = tls_of_environment();
    return !asked || asked->how != TlsAsked::How::Not;
}

}  // namespace soft
