// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/tls_certificates.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "soft/tls/tls_file.hpp"

namespace soft {

namespace {

// Returns why this line cannot be taken; nullptr when it is taken.
const char *take(TlsCertificates &to, std::string_view word, std::string_view value) {
    const bool is_list = word == "ca" || word == "crl";
    if (word == "client" || word == "server") {
        std::string name = TlsCertificates::name_of(value);
        if (name.empty()) {
            return "expected the name of a host: letters, digits, dots, - and _";
        }
        (word == "client" ? to.clients : to.servers).push_back(std::move(name));
        return nullptr;
    }
    if (!is_list && word != "certificate" && word != "key") {
        return "expected ca FILE, certificate FILE, key FILE, crl FILE, client NAME or server NAME";
    }
    const auto is_control = [](char one) { return static_cast<unsigned char>(one) < ' ' || one == 0x7F; };
    if (value.empty() || std::ranges::any_of(value, is_control)) {
        return "expected the name of a file behind the word";
    }
    std::string name{value};
    if (!name.starts_with('/')) {
        name.insert(0, to.file, 0, to.file.rfind('/') + 1);
    }
    if (is_list) {
        (word == "ca" ? to.authorities : to.revocations).push_back(std::move(name));
        return to.authorities.size() + to.revocations.size() + 3 > TlsCertificates::most_files
                   ? "expected fewer files"
                   : nullptr;
    }
    std::string &place = word == "key" ? to.key : to.certificate;
    if (!place.empty()) {
        return "expected this word in one line alone";
    }
    place = std::move(name);
    return nullptr;
}

}  // namespace

std::string TlsCertificates::name_of(std::string_view text) {
    std::string name;
    if (text.size() > most_name_bytes) {
        return name;
    }
    for (const char one : text) {
        const bool is_large = one >= 'A' && one <= 'Z';
        const bool is_small = one >= 'a' && one <= 'z';
        const bool is_digit = one >= '0' && one <= '9';
        if (!is_large && !is_small && !is_digit && one != '.' && one != '-' && one != '_') {
            return {};
        }
        name += is_large ? static_cast<char>(one - 'A' + 'a') : one;
    }
    return name;
}

base::Result<TlsCertificates> TlsCertificates::read(const char *file) {
    SecretText all;
    if (const auto got = read_tls_file(file, Readers::Everybody, all); !got) {
        return std::unexpected{got.error()};
    }
    return parse(file, all.text);
}

base::Result<void> TlsCertificates::check_files() const {
    std::vector<std::string> public_files{certificate};
    public_files.insert(public_files.end(), authorities.begin(), authorities.end());
    public_files.insert(public_files.end(), revocations.begin(), revocations.end());
    for (const std::string &name : public_files) {
        SecretText all;
        if (auto got = read_tls_file(name.c_str(), Readers::Everybody, all); !got) {
            return got;
        }
    }
    SecretText all;
    return read_tls_file(key.c_str(), Readers::Owner, all);
}

base::Result<TlsCertificates> TlsCertificates::parse(const char *file, std::string_view text) {
    TlsCertificates found;
    found.file = file;
    for (unsigned number = 1; !text.empty(); ++number) {
        const std::string_view line = take_line(text);
        if (line.empty()) {
            continue;
        }
        const std::string_view word = line.substr(0, line.find_first_of(" \t"));
        if (const char *const why = take(found, word, without_blanks(line.substr(word.size())));
            why != nullptr) {
            BASE_LOG_PEER(Error, "TLS: %s, line %u: %s: no connection is made", file, number, why);
            return base::failure(EINVAL);
        }
    }
    const char *const missing = found.authorities.empty()   ? "ca"
                                : found.certificate.empty() ? "certificate"
                                : found.key.empty()         ? "key"
                                                            : nullptr;
    if (missing != nullptr) {
        BASE_LOG_PEER(Error, "TLS: %s: expected a line %s FILE: no connection is made", file, missing);
        return base::failure(EINVAL);
    }
    return found;
}

}  // namespace soft
