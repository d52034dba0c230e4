// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_certificates: the file that RPMA_TLS=x509:FILE names. It says in which files the
// certificates and the private key are, and which peers are let in. A line has a word and a value:
//
//     ca FILE           certificates of the CAs that issue the certificates of peers; at least one line
//     certificate FILE  this host's certificate, and behind it those between it and the CA
//     key FILE          the private key of this host's certificate
//     crl FILE          a list of revoked certificates of a CA; with such a line each peer is looked up
//     client NAME       a server lets in clients of these names alone; without such a line any of the CA
//     server NAME       a client speaks to servers of these names; without such a line to those whose
//                       certificate has the address that it connects to
//
// A file's name that does not begin with a slash is in the folder of FILE. Lines that begin with # are
// comments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace soft {

struct TlsCertificates {
    // A server asks for the state of each file when a client has begun a handshake.
    static constexpr std::size_t most_files = 32;
    static constexpr std::size_t most_name_bytes = 253;  // of a name of DNS

    // Reads the file, and logs why when it cannot be used. Fails with EACCES when it is another user's, or
    // when others than its owner may write it; with EINVAL when a line is not valid, or one is missing; or as
    // open(2) does. Throws std::bad_alloc.
    [[nodiscard]] static base::Result<TlsCertificates> read(const char *file);
    // Takes the text of such a file. Fails with EINVAL.
    [[nodiscard]] static base::Result<TlsCertificates> parse(const char *file, std::string_view text);
    // Reads the files that it names, without a look at their content, and logs why when one cannot be used.
    // Fails as read() does; with EACCES when others than its owner may read the private key.
    [[nodiscard]] base::Result<void> check_files() const;
    // Returns the name of a host in small letters; empty when the text is no such name. A name has letters,
    // digits, dots, - and _. So it has no wildcard, and fits a line of log and a list of names.
    [[nodiscard]] static std::string name_of(std::string_view text);

    std::string file;
    std::vector<std::string> authorities;
    std::string certificate;
    std::string key;
    std::vector<std::string> revocations;
    std::vector<std::string> clients;
    std::vector<std::string> servers;
};

}  // namespace soft
