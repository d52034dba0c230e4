// SPDX-License-Identifier: BSD-3-Clause
// base/interface_table: tests lines that mean something, lines that do not, and which
// address belongs to which interface.
#include "base/interface_table.hpp"

#include <arpa/inet.h>

#include "../../folder.hpp"
#include "logged.hpp"
// check.hpp comes last, because it has macros with everyday names.
#include "check.hpp"

namespace {

using base::InterfaceTable;
using test::logged;

int begin(void **) {
    test::keep_log(base::LogLevel::Warning);
    return folder::make();
}

int end(void **) {
    test::end_log();
    return folder::remove();
}

std::string word_of(const InterfaceTable &table, const char *host) {
    sockaddr_in6 v6{};
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v6.sin6_family = AF_INET6;
    const bool is_v4 = inet_pton(AF_INET, host, &v4.sin_addr) == 1;
    assert_true(is_v4 || inet_pton(AF_INET6, host, &v6.sin6_addr) == 1);
    return table.word_of(is_v4 ? reinterpret_cast<sockaddr &>(v4) : reinterpret_cast<sockaddr &>(v6))
        .value_or("none");
}

void an_address_has_the_word_of_its_interface(void **) {
    const auto table = InterfaceTable::parse("# a table\n\n \teth7 mlx5_0\r\nlo soft # ours", "table");
    assert_true(logged.empty());
    assert_false(table.empty());
    assert_string_equal(word_of(table, "127.0.0.1").c_str(), "soft");
    assert_string_equal(word_of(table, "::1").c_str(), "soft");
    assert_string_equal(word_of(table, "192.0.2.1").c_str(), "none");
    assert_string_equal(word_of(InterfaceTable::parse("eth7 soft", "table"), "127.0.0.1").c_str(), "none");
}

void a_bad_line_is_named_and_left_out(void **) {
    const auto table = InterfaceTable::parse("eth0\nlo kernel\neth1 a b\nlo soft\n", "/etc/table");
    assert_true(logged.contains("/etc/table:1: \"eth0\" is left out (expected an interface and a device)"));
    assert_true(logged.contains("/etc/table:3: \"eth1 a b\" is left out"));
    assert_true(logged.contains("/etc/table:4: \"lo soft\" is left out (the interface has a line before)"));
    assert_string_equal(word_of(table, "127.0.0.1").c_str(), "kernel");
}

void a_file_is_read_if_there_is_one(void **) {
    const std::string path = folder::path / "devices";
    assert_true(InterfaceTable::read(path.c_str()).empty());
    assert_true(logged.empty());
    folder::write(path, "lo " + std::string(5000, 'x') + "\n");
    assert_int_equal(word_of(InterfaceTable::read(path.c_str()), "127.0.0.1").size(), 5000);
    assert_true(logged.empty());
    assert_true(InterfaceTable::read(folder::path.c_str()).empty());
    assert_true(logged.contains("cannot be read"));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_address_has_the_word_of_its_interface, begin, end),
        cmocka_unit_test_setup_teardown(a_bad_line_is_named_and_left_out, begin, end),
        cmocka_unit_test_setup_teardown(a_file_is_read_if_there_is_one, begin, end),
    };
    return cmocka_run_group_tests_name("base_interface_table", tests, nullptr, nullptr);
}
