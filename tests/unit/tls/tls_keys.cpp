// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_keys: RPMA_TLS, and the file of keys that it names.
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "soft/ground/environment.hpp"
#include "soft/tls/tls_keys.hpp"

#include "../base/logged.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

using soft::TlsKeys;

constexpr const char *sixteen = "000102030405060708090a0b0c0d0e0F";

int error_of(std::string_view text) {
    const auto keys = TlsKeys::parse("keys", text);
    return keys ? 0 : keys.error().number;
}

void the_first_key_is_the_own(void **) {
    const auto keys = TlsKeys::parse(
        "keys", std::string{"# a comment\n\n host-1:"} + sixteen + "\r\nhost-2:" + sixteen + sixteen);
    assert_true(keys.has_value());
    assert_string_equal(keys->own().identity.c_str(), "host-1");
    assert_int_equal(keys->own().bytes.size(), 16);
    assert_int_equal(keys->own().bytes[15], 15);
    assert_non_null(keys->find("host-2"));
    assert_int_equal(keys->find("host-2")->bytes.size(), 32);
    assert_null(keys->find("host"));
    assert_null(keys->find(""));
}

void what_is_no_key_is_refused(void **) {
    const std::string key = sixteen;
    for (const std::string &text :
         {std::string{}, std::string{"# nothing\n"}, std::string{"host"}, std::string{"host:"}, ":" + key,
          "host:" + key.substr(2), "host:" + key + "0", "host:" + key + key + key + key + "00",
          "host:" + key.substr(2) + "0x", "a host:" + key, "host#1:" + key, std::string(65, 'h') + ":" + key,
          "host:" + key + "\nhost:" + key, "host:" + key + "\nother"}) {
        test::keep_log(base::LogLevel::Error);
        assert_int_equal(error_of(text), EINVAL);
        assert_false(test::logged.empty());
        assert_false(test::logged.contains(key.substr(2)));  // a key is no matter for a log
    }
    test::end_log();
    assert_int_equal(error_of("host:" + key + key + key + key), 0);
    assert_int_equal(error_of(std::string(64, 'h') + ":" + key), 0);
}

void a_large_file_has_each_identity_once(void **) {
    std::string text;
    for (int number = 0; number < 20'000; ++number) {
        text += "host-" + std::to_string(number) + ":" + sixteen + "\n";
    }
    const auto keys = TlsKeys::parse("keys", text);
    assert_true(keys.has_value());
    assert_non_null(keys->find("host-19999"));
    assert_int_equal(error_of(text + "host-12345:" + sixteen), EINVAL);
}

void a_file_is_its_owners_alone(void **) {
    const std::string name = std::filesystem::absolute("some_keys");
    std::ofstream{name} << "host:" << sixteen << '\n';
    test::keep_log(base::LogLevel::Error);
    using std::filesystem::perms;
    for (const auto more : {perms::group_read, perms::others_read, perms::group_write, perms::others_exec}) {
        std::filesystem::permissions(name, perms::owner_read | perms::owner_write | more);
        const auto keys = TlsKeys::read(name.c_str());
        assert_false(keys.has_value());
        assert_int_equal(keys.error().number, EACCES);
    }
    std::filesystem::permissions(name, perms::owner_read);
    assert_true(TlsKeys::read(name.c_str()).has_value());
    if (geteuid() == 0) {
        assert_int_equal(chown(name.c_str(), 1, 1), 0);
        const auto keys = TlsKeys::read(name.c_str());
        assert_false(keys.has_value());
        assert_int_equal(keys.error().number, EACCES);
    }
    const auto folder = TlsKeys::read("/");
    assert_false(folder.has_value());
    assert_int_equal(folder.error().number, EINVAL);
    std::filesystem::remove(name);
    const auto none = TlsKeys::read(name.c_str());
    assert_false(none.has_value());
    assert_int_equal(none.error().number, ENOENT);
    test::end_log();
}

void the_variable_names_a_whole_path(void **) {
    test::keep_log(base::LogLevel::Error);
    for (const char *const wrong : {"psk", "psk:", "psk:keys", "/etc/keys", "tls:/etc/keys", "off", " psk:/a",
                                    "x509", "x509:", "x509:certificates"}) {
        const auto asked = soft::tls_asked_for(wrong);
        assert_false(asked.has_value());
        assert_int_equal(asked.error().number, EINVAL);
        assert_true(test::logged.contains("expected psk:FILE or x509:FILE"));
    }
    test::end_log();
    for (const char *const none : {static_cast<const char *>(nullptr), ""}) {
        const auto asked = soft::tls_asked_for(none);
        assert_true(asked.has_value() && asked->how == base::TlsAsked::How::Not);
    }
    const auto asked = soft::tls_asked_for("psk:/etc/rpma/keys");
    assert_true(asked.has_value() && asked->how == base::TlsAsked::How::Keys);
    assert_string_equal(asked->file.c_str(), "/etc/rpma/keys");
    const auto certificates = soft::tls_asked_for("x509:/etc/rpma/x509");
    assert_true(certificates.has_value() && certificates->how == base::TlsAsked::How::Certificates);
    assert_string_equal(certificates->file.c_str(), "/etc/rpma/x509");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_first_key_is_the_own),
        cmocka_unit_test(what_is_no_key_is_refused),
        cmocka_unit_test(a_large_file_has_each_identity_once),
        cmocka_unit_test(a_file_is_its_owners_alone),
        cmocka_unit_test(the_variable_names_a_whole_path),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
