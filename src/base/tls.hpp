// SPDX-License-Identifier: BSD-3-Clause
// base/tls: whether a connection uses TLS, and how its ends authenticate each other, as RPMA_TLS or a program
// says it.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace base {

// Returns the value of RPMA_TLS, with which connections use TLS and nothing else; nullptr when the variable
// is not set, or empty. A process with raised privileges heeds it too: whoever set it expects no byte in the
// clear.
[[nodiscard]] inline const char *required_tls() {
    const char *const value = std::getenv("RPMA_TLS");
    return value != nullptr && *value != '\0' ? value : nullptr;
}

struct TlsAsked {
    enum class How : std::uint8_t { Not, Keys, Certificates };

    // Takes psk:FILE or x509:FILE. Fails with EINVAL. A program may go to another folder before a connection
    // reads the file, so the name begins with a slash. Throws std::bad_alloc.
    [[nodiscard]] static Result<TlsAsked> parse(std::string_view word) {
        constexpr std::string_view keys = "psk:";
        constexpr std::string_view certificates = "x509:";
        if (word.starts_with("psk:/")) {
            return TlsAsked{.how = How::Keys, .file = std::string{word.substr(keys.size())}};
        }
        if (word.starts_with("x509:/")) {
            return TlsAsked{.how = How::Certificates, .file = std::string{word.substr(certificates.size())}};
        }
        return failure(EINVAL);
    }

    // Returns whether the connection uses TLS and nothing else.
    [[nodiscard]] bool is_required() const { return how != How::Not; }

    [[nodiscard]] bool operator==(const TlsAsked &) const = default;

    How how = How::Not;
    std::string file;  // of keys (psk:FILE), or one that names certificates (x509:FILE)
};

// An id, its handshakes and the ids of its requests share one.
using SharedTls = std::shared_ptr<const TlsAsked>;

}  // namespace base
