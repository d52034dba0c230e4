// SPDX-License-Identifier: BSD-3-Clause
#include "soft/tls/tls_keys.hpp"

#include <string.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <unordered_set>

#include "base/log.hpp"
#include "soft/tls/tls_file.hpp"

namespace soft {

namespace {

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

}  // namespace

base::Result<TlsKeys> TlsKeys::read(const char *file) {
    SecretText all;
    if (const auto got = read_tls_file(file, Readers::Owner, all); !got) {
        return std::unexpected{got.error()};
    }
    return parse(file, all.text);
}

base::Result<TlsKeys> TlsKeys::parse(const char *file, std::string_view text) {
    TlsKeys keys;
    std::unordered_set<std::string_view> known;  // a file may have very many lines
    for (unsigned number = 1; !text.empty(); ++number) {
        const std::string_view line = take_line(text);
        if (line.empty()) {
            continue;
        }
        const std::string_view identity = line.substr(0, line.find(':'));
        const std::string_view key = line.substr(std::min(identity.size() + 1, line.size()));
        // The bytes have their place before they are read, because ~TlsKeys overwrites them there.
        Key &made = keys.keys_.emplace_back();
        if (!is_identity(identity) || !read_key(key, made.bytes)) {
            BASE_LOG_PEER(Error,
                          "TLS: %s, line %u: expected IDENTITY:KEY, the identity of up to %zu characters "
                          "without spaces, the key of %zu to %zu hexadecimal digits: no connection is made",
                          file, number, most_identity_bytes, 2 * least_key_bytes, 2 * most_key_bytes);
            return base::failure(EINVAL);
        }
        if (!known.insert(identity).second) {
            BASE_LOG_PEER(Error, "TLS: %s, line %u: the identity has two keys: no connection is made", file,
                          number);
            return base::failure(EINVAL);
        }
        made.identity = identity;
    }
    if (keys.keys_.empty()) {
        BASE_LOG_PEER(Error, "TLS: %s has no key: no connection is made", file);
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
