// SPDX-License-Identifier: BSD-3-Clause
// This target reads a file of keys for TLS, and reads it a second time with regular expressions. Both have to
// agree on whether the file is valid, and on each key.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "choices.hpp"
#include "soft/tls/tls_keys.hpp"

namespace {

using fuzz::require;
using soft::TlsKeys;

void discard(int, const char *, int, const char *, const char *, ...) {}

struct Expected {
    std::string own;                          // the identity of the first line
    std::map<std::string, std::string> keys;  // in lower-case digits, by identity
};

// Returns no value for a file that is not valid.
std::optional<Expected> expected_of(const std::string &text) {
    static const std::regex key{"[ \\t\\r]*([!-\"$-9;-~]{1,64}):((?:[0-9a-fA-F]{2}){16,64})[ \\t\\r]*"};
    Expected expected;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        std::smatch parts;
        const std::string visible = line.substr(std::min(line.find_first_not_of(" \t\r"), line.size()));
        if (visible.empty() || visible.front() == '#') {
            continue;
        }
        if (!std::regex_match(line, parts, key)) {
            return std::nullopt;
        }
        std::string digits = parts[2].str();
        for (char &one : digits) {
            one = static_cast<char>(std::tolower(static_cast<unsigned char>(one)));
        }
        if (!expected.keys.emplace(parts[1].str(), digits).second) {
            return std::nullopt;
        }
        expected.own = expected.own.empty() ? parts[1].str() : expected.own;
    }
    return expected.keys.empty() ? std::nullopt : std::optional{expected};
}

std::string digits_of(const TlsKeys::Key &key) {
    std::string digits;
    for (const unsigned char byte : key.bytes) {
        constexpr std::string_view all = "0123456789abcdef";
        digits += all[byte >> 4];
        digits += all[byte & 0xF];
    }
    return digits;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static const bool quiet = (base::set_log_sink(discard), true);
    require(quiet, "the log is formatted and dropped");
    // std::regex goes deeper with each character, and lines of keys are short.
    const std::string text{reinterpret_cast<const char *>(data), std::min(size, std::size_t{4096})};
    const auto expected = expected_of(text);
    const auto keys = TlsKeys::parse("keys", text);
    require(keys.has_value() == expected.has_value(), "a file is valid or not");
    if (!keys) {
        return 0;
    }
    require(keys->own().identity == expected->own, "the first line is the own");
    for (const auto &[identity, digits] : expected->keys) {
        const TlsKeys::Key *const key = keys->find(identity);
        require(key != nullptr && key->identity == identity, "each identity is found");
        require(digits_of(*key) == digits, "each has the key of its line");
        require(expected->keys.contains(identity + ":") || keys->find(identity + ":") == nullptr,
                "no other identity is found");
    }
    require(keys->find("") == nullptr, "there is no empty identity");
    return 0;
}
