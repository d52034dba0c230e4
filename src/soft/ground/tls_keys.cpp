// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/tls_keys: see the header.
#include "soft/ground/tls_keys.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <unordered_set>

#include "base/fd.hpp"
#include "base/log.hpp"

namespace soft {

namespace {

constexpr std::size_t most_file_bytes = std::size_t{1} << 20;

// Overwrites the characters when it ends, because they are keys.
struct SecretText {
    SecretText() = default;
    SecretText(const SecretText &) = delete;
    SecretText &operator=(const SecretText &) = delete;
    ~SecretText() { explicit_bzero(text.data(), text.size()); }

    std::string text;
};

// Returns why the open file may not be used, or nothing.
base::Result<void> allowed(const char *file, const struct stat &found) {
    if (!S_ISREG(found.st_mode)) {
        BASE_LOG_PEER(Error, "RPMA_TLS: %s is not a file: no connection is made", file);
        return base::failure(EINVAL);
    }
    if (found.st_uid != 0 && found.st_uid != geteuid()) {
        BASE_LOG_PEER(Error,
                      "RPMA_TLS: %s belongs to user %u, not to this one or root: no connection is made", file,
                      found.st_uid);
        return base::failure(EACCES);
    }
    if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        BASE_LOG_PEER(
            Error,
            "RPMA_TLS: others than its owner may use %s (mode %04o): no connection is made until you "
            "chmod 600 it",
            file, found.st_mode & 07777U);
        return base::failure(EACCES);
    }
    if (found.st_size < 0 || static_cast<std::size_t>(found.st_size) > most_file_bytes) {
        BASE_LOG_PEER(Error, "RPMA_TLS: %s has more than %zu bytes: no connection is made", file,
                      most_file_bytes);
        return base::failure(EINVAL);
    }
    return {};
}

bool is_identity(std::string_view text) {
    return !text.empty() && text.size() <= TlsKeys::most_identity_bytes &&
           std::ranges::all_of(text, [](char one) { return one > ' ' && one < 0x7F && one != '#'; });
}

// Appends the bytes of a key. Returns false when the digits are no key.
bool read_key(std::string_view digits, std::vector<unsigned char> &bytes) {
    if (digits.size() % 2 != 0 || digits.size() < 2 * TlsKeys::least_key_bytes ||
        digits.size() > 2 * TlsKeys::most_key_bytes) {
        return false;
    }
    bytes.resize(digits.size() / 2);
    for (std::size_t place = 0; place < bytes.size(); ++place) {
        const char *const begin = digits.data() + 2 * place;
        if (std::from_chars(begin, begin + 2, bytes[place], 16).ptr != begin + 2) {
            return false;
        }
    }
    return true;
}

std::string_view without_blanks(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
    const std::size_t last = text.find_last_not_of(blanks);
    return last == std::string_view::npos ? std::string_view{} : text.substr(begin, last + 1 - begin);
}

}  // namespace

base::Result<TlsKeys> TlsKeys::read(const char *file) {
    const base::Fd opened{open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
    struct stat found{};
    if (!opened || fstat(opened.get(), &found) != 0) {
        const auto failed = base::last_failure();
        BASE_LOG_PEER(Error, "RPMA_TLS: %s: %s: no connection is made", file,
                      std::strerror(failed.error().number));
        return failed;
    }
    if (const auto may = allowed(file, found); !may) {
        return std::unexpected{may.error()};
    }
    SecretText all;
    all.text.resize(static_cast<std::size_t>(found.st_size));
    const ssize_t count = ::read(opened.get(), all.text.data(), all.text.size());
    if (count < 0) {
        const auto failed = base::last_failure();
        BASE_LOG_PEER(Error, "RPMA_TLS: %s: %s: no connection is made", file,
                      std::strerror(failed.error().number));
        return failed;
    }
    return parse(file, std::string_view{all.text}.substr(0, static_cast<std::size_t>(count)));
}

base::Result<TlsKeys> TlsKeys::parse(const char *file, std::string_view text) {
    TlsKeys keys;
    std::unordered_set<std::string_view> known;  // a file may have very many lines
    for (unsigned number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = without_blanks(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.empty() || line.starts_with('#')) {
            continue;
        }
        const std::string_view identity = line.substr(0, line.find(':'));
        const std::string_view key = line.substr(std::min(identity.size() + 1, line.size()));
        // The bytes have their place before they are read, because ~TlsKeys overwrites them there.
        Key &made = keys.keys_.emplace_back();
        if (!is_identity(identity) || !read_key(key, made.bytes)) {
            BASE_LOG_PEER(
                Error,
                "RPMA_TLS: %s, line %u: expected IDENTITY:KEY, the identity of up to %zu characters "
                "without spaces, the key of %zu to %zu hexadecimal digits: no connection is made",
                file, number, most_identity_bytes, 2 * least_key_bytes, 2 * most_key_bytes);
            return base::failure(EINVAL);
        }
        if (!known.insert(identity).second) {
            BASE_LOG_PEER(Error, "RPMA_TLS: %s, line %u: the identity has two keys: no connection is made",
                          file, number);
            return base::failure(EINVAL);
        }
        made.identity = identity;
    }
    if (keys.keys_.empty()) {
        BASE_LOG_PEER(Error, "RPMA_TLS: %s has no key: no connection is made", file);
        return base::failure(EINVAL);
    }
    return keys;
}

TlsKeys::~TlsKeys() {
    for (Key &key : keys_) {
        if (!key.bytes.empty()) {
            explicit_bzero(key.bytes.data(), key.bytes.size());
        }
    }
}

const TlsKeys::Key *TlsKeys::find(std::string_view identity) const {
    const auto found = std::ranges::find(keys_, identity, &Key::identity);
    return found != keys_.end() ? &*found : nullptr;
}

}  // namespace soft
