// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_certificates: the file that RPMA_TLS=x509:FILE names, and the rights of the files in it.
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "soft/tls/tls_certificates.hpp"
#include "soft/tls/tls_file.hpp"

#include "../base/logged.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

using soft::TlsCertificates;
using std::filesystem::perms;

constexpr const char *least = "ca ca.pem\ncertificate own.pem\nkey own.key\n";

void files_are_in_the_folder_of_the_list(void **) {
    const auto found = TlsCertificates::parse("/etc/rpma/x509",
                                              "# comment\r\n\n \tca\t ca 1.pem \r\nca /other/ca.pem\n"
                                              "certificate own.pem\nkey ../own.key\ncrl list.pem\n"
                                              "client Host-A.example\nclient b\nserver store_1");
    assert_true(found.has_value());
    assert_string_equal(found->file.c_str(), "/etc/rpma/x509");
    assert_int_equal(found->authorities.size(), 2);
    assert_string_equal(found->authorities[0].c_str(), "/etc/rpma/ca 1.pem");
    assert_string_equal(found->authorities[1].c_str(), "/other/ca.pem");
    assert_string_equal(found->certificate.c_str(), "/etc/rpma/own.pem");
    assert_string_equal(found->key.c_str(), "/etc/rpma/../own.key");
    assert_int_equal(found->revocations.size(), 1);
    assert_string_equal(found->revocations[0].c_str(), "/etc/rpma/list.pem");
    assert_int_equal(found->clients.size(), 2);
    assert_string_equal(found->clients[0].c_str(), "host-a.example");
    assert_int_equal(found->servers.size(), 1);
    assert_string_equal(found->servers[0].c_str(), "store_1");
}

// The line of log names the file, the line and what was expected.
void what_is_no_list_is_refused(void **) {
    struct Wrong {
        std::string text;
        const char *line;
    };
    const std::string right = least;
    std::string many;
    for (unsigned number = 0; number < TlsCertificates::most_files; ++number) {
        many += "ca one.pem\n";
    }
    for (const auto &[text, line] : {
             Wrong{"", "list: expected a line ca FILE"},
             Wrong{"ca a\nkey b\n", "list: expected a line certificate FILE"},
             Wrong{"ca a\ncertificate b\n", "list: expected a line key FILE"},
             Wrong{right + "ca\n", "list, line 4: expected the name of a file"},
             Wrong{right + "ca \x01\n", "list, line 4: expected the name of a file"},
             Wrong{right + "key other\n", "list, line 4: expected this word in one line alone"},
             Wrong{right + "\ncertificate other\n", "list, line 5: expected this word in one line alone"},
             Wrong{right + "keys a\n", "list, line 4: expected ca FILE, certificate FILE"},
             Wrong{right + "client *.example\n", "list, line 4: expected the name of a host"},
             Wrong{right + "server\n", "list, line 4: expected the name of a host"},
             Wrong{right + "server " + std::string(254, 'a'), "list, line 4: expected the name of a host"},
             Wrong{right + many, "expected fewer files"},
         }) {
        test::keep_log(base::LogLevel::Error);
        const auto found = TlsCertificates::parse("list", text);
        assert_false(found.has_value());
        assert_int_equal(found.error().number, EINVAL);
        if (!test::logged.contains(line)) {
            fail_msg("expected \"%s\", logged \"%s\"", line, test::logged.c_str());
        }
    }
    test::end_log();
    assert_true(TlsCertificates::parse("list", right + "server " + std::string(253, 'a')).has_value());
}

void write(const std::filesystem::path &name, std::string_view text, perms mode) {
    std::filesystem::remove(name);
    std::ofstream{name} << text;
    std::filesystem::permissions(name, mode);
}

// Nobody but the owner reads the key, and nobody but the owner says whom this host trusts.
void others_read_no_key_and_write_nothing(void **) {
    const auto folder = std::filesystem::absolute("certificates");
    std::filesystem::create_directories(folder);
    constexpr perms all_read = perms::owner_read | perms::group_read | perms::others_read;
    const auto list = (folder / "list").string();
    const auto checked = [&] {
        const auto found = TlsCertificates::read(list.c_str());
        const auto done = found ? found->check_files() : std::unexpected{found.error()};
        return done ? 0 : done.error().number;
    };
    const auto prepare = [&] {
        write(list, least, all_read);
        write(folder / "ca.pem", "", all_read);
        write(folder / "own.pem", "", all_read);
        write(folder / "own.key", "", perms::owner_read);
    };
    prepare();
    assert_int_equal(checked(), 0);
    for (const char *const name : {"list", "ca.pem", "own.pem", "own.key"}) {
        test::keep_log(base::LogLevel::Error);
        std::filesystem::permissions(folder / name, perms::others_write, std::filesystem::perm_options::add);
        assert_int_equal(checked(), EACCES);
        assert_true(test::logged.contains((folder / name).string() + " (mode"));
        prepare();
        assert_int_equal(checked(), 0);
        std::filesystem::remove(folder / name);
        assert_int_equal(checked(), ENOENT);
        assert_true(test::logged.contains((folder / name).string() + ": No such file"));
        prepare();
    }
    test::keep_log(base::LogLevel::Error);
    write(folder / "own.key", "", all_read);
    assert_int_equal(checked(), EACCES);
    assert_true(test::logged.contains("others than its owner may use"));
    test::end_log();
}

void a_changed_file_has_another_stamp(void **) {
    const auto name = std::filesystem::absolute("stamped").string();
    std::filesystem::remove(name);
    const auto none = soft::FileStamp::of(name.c_str());
    write(name, "one", perms::owner_read);
    const auto one = soft::FileStamp::of(name.c_str());
    assert_false(one == none);
    assert_true(one == soft::FileStamp::of(name.c_str()));
    assert_true(none.is_settled());
    assert_false(one.is_settled());
    assert_true(soft::FileStamp::of("/").is_settled());
    write(name, "longer", perms::owner_read);
    assert_false(one == soft::FileStamp::of(name.c_str()));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(files_are_in_the_folder_of_the_list),
        cmocka_unit_test(what_is_no_list_is_refused),
        cmocka_unit_test(others_read_no_key_and_write_nothing),
        cmocka_unit_test(a_changed_file_has_another_stamp),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
