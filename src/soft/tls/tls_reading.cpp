// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/tls_reading.hpp"

#include <cerrno>
#include <string_view>
#include <utility>

#include "soft/tls/openssl.hpp"

namespace soft {

base::Result<const TlsKeys *> TlsReading::keys(const char *file) {
    auto place = keys_.find(std::string_view{file});
    if (place == keys_.end()) {
        auto read = TlsKeys::read(file);
        if (!read) {
            return std::unexpected{read.error()};
        }
        place = keys_.emplace(file, std::move(*read)).first;
    }
    return &place->second;
}

base::Result<std::shared_ptr<const OwnCertificates>> TlsReading::certificates(const char *file) {
    const auto place = certificates_.find(std::string_view{file});
    if (place != certificates_.end()) {
        return place->second;
    }
    auto read = OwnCertificates::current(file);
    if (read) {
        certificates_.emplace(file, *read);
    }
    return read;
}

base::Result<void> TlsReading::check(const base::TlsAsked &asked) {
    switch (asked.how) {
        case base::TlsAsked::How::Keys: {
            const auto found = keys(asked.file.c_str());
            return found ? base::Result<void>{} : std::unexpected{found.error()};
        }
        case base::TlsAsked::How::Certificates: {
            if (OpenSsl::find() == nullptr) {
                return base::failure(ENOSYS);
            }
            const auto found = certificates(asked.file.c_str());
            return found ? base::Result<void>{} : std::unexpected{found.error()};
        }
        case base::TlsAsked::How::Not:
            break;
    }
    return {};
}

}  // namespace soft
