// SPDX-License-Identifier: BSD-3-Clause
// Makes certificates for tests of whole programs: `test_certificates FOLDER NAME[=KIND]...`. Each NAME
// becomes a file of RPMA_TLS=x509:FOLDER/NAME, issued by the CA FOLDER/ca.pem, which is made when it is not
// there. A kind is expired, early, client (for clients only), server, nameless, elsewhere (for another
// address), self (signed by itself) or foreign (of another CA).
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "certificates.hpp"

namespace {

using test::CertificateWish;
using test::Issued;

// Returns whether there is such a kind.
bool change(CertificateWish &wish, std::string_view kind) {
    if (kind == "expired") {
        wish.begins = -7200;
        wish.ends = -3600;
    } else if (kind == "early") {
        wish.begins = 3600;
        wish.ends = 7200;
    } else if (kind == "client" || kind == "server") {
        wish.purposes = std::string{kind} + "Auth";
    } else if (kind == "nameless") {
        wish.others = "IP:127.0.0.1";
    } else if (kind == "elsewhere") {
        wish.others = "DNS:" + wish.name + ",IP:192.0.2.1";
    } else {
        return kind.empty() || kind == "self" || kind == "foreign";
    }
    return true;
}

Issued authority_of(const std::filesystem::path &folder) {
    if (!std::filesystem::exists(folder / "ca.pem")) {
        const Issued made = test::make_authority("the tests' CA");
        test::write_key(folder / "ca.key", *made.key);
        test::write_certificates(folder / "ca.pem", {made.certificate.get()});
    }
    return test::read_issued(folder / "ca.pem", folder / "ca.key");
}

}  // namespace

int main(int count, char **words) {
    if (count < 3) {
        (void)std::fprintf(stderr, "usage: test_certificates FOLDER NAME[=KIND]...\n");
        return 2;
    }
    const std::filesystem::path folder{words[1]};
    std::filesystem::create_directories(folder);
    const Issued authority = authority_of(folder);
    const Issued other = test::make_authority("another CA");
    for (int place = 2; place < count; ++place) {
        const std::string_view word{words[place]};
        const std::string name{word.substr(0, word.find('='))};
        const std::string_view kind = word.substr(std::min(name.size() + 1, word.size()));
        CertificateWish wish{.name = name, .others = "DNS:" + name + ",IP:127.0.0.1,IP:::1", .ends = 86400};
        if (!change(wish, kind)) {
            (void)std::fprintf(stderr, "test_certificates: no kind %s\n", words[place]);
            return 2;
        }
        const Issued made = test::issue(wish, kind == "self"      ? nullptr
                                              : kind == "foreign" ? &other
                                                                  : &authority);
        test::write_key(folder / (name + ".key"), *made.key);
        test::write_certificates(folder / (name + ".pem"), {made.certificate.get()});
        std::ofstream{folder / name} << "ca ca.pem\ncertificate " << name << ".pem\nkey " << name << ".key\n";
    }
    return 0;
}
