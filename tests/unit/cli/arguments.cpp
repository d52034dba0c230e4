// SPDX-License-Identifier: BSD-3-Clause
// cli/arguments: tests which arguments are taken, and which are refused.
#include "cli/arguments.hpp"

#include <limits>

#include "bytes.hpp"

namespace {

void addresses_are_parsed(void **) {
    const auto ipv4 = cli::parse_address("127.0.0.1:7204");
    assert_true(ipv4.has_value());
    assert_string_equal(ipv4->host.c_str(), "127.0.0.1");
    assert_string_equal(ipv4->port.c_str(), "7204");
    const auto ipv6 = cli::parse_address("[fe80::1%eth0]:65535");
    assert_true(ipv6.has_value());
    assert_string_equal(ipv6->host.c_str(), "fe80::1%eth0");
    assert_string_equal(ipv6->text().c_str(), "[fe80::1%eth0]:65535");
    assert_string_equal(cli::parse_address("host:0001")->text().c_str(), "host:1");
}

void the_port_has_a_default(void **) {
    assert_string_equal(cli::parse_address("127.0.0.1")->text().c_str(), "127.0.0.1:7204");
    assert_string_equal(cli::parse_address("host.example")->text().c_str(), "host.example:7204");
    assert_string_equal(cli::parse_address("[fe80::1%eth0]")->text().c_str(), "[fe80::1%eth0]:7204");
}

void a_name_follows_the_address(void **) {
    const auto both = cli::parse_where("[::1]:7300/a.name");
    assert_true(both.has_value());
    assert_string_equal(both->address.text().c_str(), "[::1]:7300");
    assert_string_equal(both->name.c_str(), "a.name");
    assert_string_equal(cli::parse_where("host")->name.c_str(), "");
    for (const char *text : {"host/", "host/..", "host/.a", "host/a/b", "host/a b"}) {
        assert_fails(cli::parse_where(text), "is no name");
    }
    assert_fails(cli::parse_where("http://host/name"), "no URL");
    assert_fails(cli::parse_where("/name"), "expected ADDRESS");
}

void the_nearest_word_is_found(void **) {
    const std::vector<std::string> words{"--timeout", "--json", "--wait"};
    assert_string_equal(cli::nearest("--timout", words).c_str(), "--timeout");
    assert_string_equal(cli::nearest("--tiemout", words).c_str(), "--timeout");
    assert_string_equal(cli::nearest("--waits", words).c_str(), "--wait");
    assert_string_equal(cli::nearest("puhs", {"pull", "push"}).c_str(), "push");  // two letters are exchanged
    assert_string_equal(cli::nearest("--faster", words).c_str(), "");
    assert_string_equal(cli::nearest("", words).c_str(), "");
    assert_string_equal(cli::nearest("push", {}).c_str(), "");
}

void bad_addresses_are_refused(void **) {
    for (const char *text :
         {"", ":", ":1", "[]", "[::1", "::1", "host:", "host:x", "host:1x", "host:-1", "host:+1", "host: 1",
          "host:0", "host:65536", "host:18446744073709551617", "[]:1", "::1:7204"}) {
        assert_fails(cli::parse_address(text), text);
    }
    assert_fails(cli::parse_address("host:65536"), "1 to 65535");
    assert_fails(cli::parse_address("::1:7204"), "[::1]:7204");
}

void sizes_are_parsed(void **) {
    assert_int_equal(cli::parse_size("1").value(), 1);
    assert_int_equal(cli::parse_size("4095").value(), 4095);
    assert_int_equal(cli::parse_size("2k").value(), 2048);
    assert_int_equal(cli::parse_size("3M").value(), 3 << 20);
    assert_int_equal(cli::parse_size("1G").value(), 1 << 30);
    assert_int_equal(cli::parse_size("16T").value(), std::uint64_t{16} << 40);
    assert_int_equal(cli::parse_size("18446744073709551615").value(),
                     std::numeric_limits<std::uint64_t>::max());
}

void bad_sizes_are_refused(void **) {
    for (const char *text :
         {"", "0", "0G", "G", "-1", "1.5G", "1GB", "1 G", "0x10", "18446744073709551616", "16777216T"}) {
        assert_fails(cli::parse_size(text), "K, M, G or T");
    }
}

void numbers_of_options_are_checked(void **) {
    const auto check = cli::number_between(0.1, 3600);
    for (const char *text : {"0.1", "1", "1e3", "3600"}) {
        assert_string_equal(check(text).c_str(), "");
    }
    for (const char *text : {"", "x", "1x", " 1", "-1", "0", "3600.1", "nan", "-nan", "inf"}) {
        assert_string_equal(check(text).c_str(),
                            fmt::format("{}: expected a number from 0.1 to 3600", text).c_str());
    }
}

void sizes_are_shown(void **) {
    assert_string_equal(cli::format_size(0).c_str(), "0 bytes");
    assert_string_equal(cli::format_size(1023).c_str(), "1023 bytes");
    assert_string_equal(cli::format_size(1536).c_str(), "1.5 KiB");
    assert_string_equal(cli::format_size(1 << 30).c_str(), "1.0 GiB");
    assert_string_equal(cli::format_size(1e18).c_str(), "909494.7 TiB");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_port_has_a_default),         cmocka_unit_test(a_name_follows_the_address),
        cmocka_unit_test(the_nearest_word_is_found),      cmocka_unit_test(addresses_are_parsed),
        cmocka_unit_test(bad_addresses_are_refused),      cmocka_unit_test(sizes_are_parsed),
        cmocka_unit_test(bad_sizes_are_refused),          cmocka_unit_test(sizes_are_shown),
        cmocka_unit_test(numbers_of_options_are_checked),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
