// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_keys: the keys of TLS, which both ends of a connection have (RPMA_TLS=psk:FILE). A line of
// the file is IDENTITY:KEY, the key in hexadecimal digits; lines that begin with # are comments. The first
// line is what this host uses as a client. A server takes any of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace soft {

class TlsKeys {
public:
    static constexpr std::size_t least_key_bytes = 16;
    static constexpr std::size_t most_key_bytes = 64;
    static constexpr std::size_t most_identity_bytes = 64;

    struct Key {
        std::string identity;
        std::vector<unsigned char> bytes;
    };

    // Reads the file, and logs why when it cannot be used. Fails with EACCES when it is another user's, or
    // when others than its owner may read or write it; with EINVAL when a line is not valid or there is no
    // key; or as open(2) does. Throws std::bad_alloc.
    [[nodiscard]] static base::Result<TlsKeys> read(const char *file);
    // Takes the text of such a file. `file` is its name, for the log. Fails with EINVAL.
    [[nodiscard]] static base::Result<TlsKeys> parse(const char *file, std::string_view text);
    TlsKeys(TlsKeys &&) = default;
    TlsKeys &operator=(TlsKeys &&) = delete;
    TlsKeys(const TlsKeys &) = delete;
    TlsKeys &operator=(const TlsKeys &) = delete;
    // Overwrites the keys.
    ~TlsKeys();

    // Returns this host's key as a client.
    [[nodiscard]] const Key &own() const { return keys_.front(); }
    // Returns nullptr when there is none of that identity.
    [[nodiscard]] const Key *find(std::string_view identity) const;

private:
    TlsKeys() = default;

    std::vector<Key> keys_;
};

}  // namespace soft
