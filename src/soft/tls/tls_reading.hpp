// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_reading: the files of TLS for one question about several peers, each file read once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/tls.hpp"
#include "soft/tls/own_certificates.hpp"
#include "soft/tls/tls_keys.hpp"

namespace soft {

class TlsReading {
public:
    // These fail as TlsKeys::read and OwnCertificates::current, and throw std::bad_alloc.
    [[nodiscard]] base::Result<const TlsKeys *> keys(const char *file);
    [[nodiscard]] base::Result<std::shared_ptr<const OwnCertificates>> certificates(const char *file);
    // Checks all files that this names. Fails with ENOSYS, and logs it, without OpenSSL.
    [[nodiscard]] base::Result<void> check(const base::TlsAsked &asked);

private:
    std::map<std::string, TlsKeys, std::less<>> keys_;
    std::map<std::string, std::shared_ptr<const OwnCertificates>, std::less<>> certificates_;
};

}  // namespace soft
