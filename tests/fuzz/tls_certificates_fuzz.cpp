// SPDX-License-Identifier: BSD-3-Clause
// This target reads a file that names certificates. What it takes is within its limits, and says the same
// when it is written down and read once more.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "choices.hpp"
#include "soft/tls/tls_certificates.hpp"

namespace {

using fuzz::require;
using soft::TlsCertificates;

void discard(int, const char *, int, const char *, const char *, ...) {}

void require_files(const std::vector<std::string> &files) {
    for (const std::string &one : files) {
        require(one.starts_with("/folder/") || one.starts_with('/'), "a file has a whole path");
        require(std::ranges::none_of(one, [](char c) { return static_cast<unsigned char>(c) < ' '; }),
                "it has no control characters");
    }
}

void require_names(const std::vector<std::string> &names) {
    constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyz0123456789.-_";
    for (const std::string &one : names) {
        require(!one.empty() && one.size() <= TlsCertificates::most_name_bytes, "a name is of a host");
        require(one.find_first_not_of(allowed) == std::string::npos, "a name has small letters");
    }
}

std::string text_of(const TlsCertificates &found) {
    std::string text = "certificate " + found.certificate + "\nkey " + found.key + "\n";
    const auto add = [&text](std::string_view word, const std::vector<std::string> &values) {
        for (const std::string &one : values) {
            text.append(word).append(" ").append(one).append("\n");
        }
    };
    add("ca", found.authorities);
    add("crl", found.revocations);
    add("client", found.clients);
    add("server", found.servers);
    return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static const bool quiet = (base::set_log_sink(discard), true);
    require(quiet, "the log is formatted and dropped");
    const std::string_view text{reinterpret_cast<const char *>(data), size};
    const auto found = TlsCertificates::parse("/folder/list", text);
    if (!found) {
        return 0;
    }
    require(!found->authorities.empty(), "there is a CA");
    require(found->authorities.size() + found->revocations.size() + 3 <= TlsCertificates::most_files,
            "the files are few");
    require_files(found->authorities);
    require_files(found->revocations);
    require_files({found->certificate, found->key});
    require_names(found->clients);
    require_names(found->servers);
    const auto again = TlsCertificates::parse("/folder/list", text_of(*found));
    require(again.has_value(), "it is valid once more");
    require(again->authorities == found->authorities && again->revocations == found->revocations &&
                again->certificate == found->certificate && again->key == found->key,
            "the files are the same");
    require(again->clients == found->clients && again->servers == found->servers, "the names are the same");
    return 0;
}
