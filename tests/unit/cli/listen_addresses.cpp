// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/listen_addresses: tests that an address stands for itself and a wildcard for each address of this
// machine, and that a name is looked up.
#include "cli/serve/listen_addresses.hpp"

#include <algorithm>

#include "bytes.hpp"

namespace {

bool has(const cli::ListenAddresses &found, std::string_view host) {
    return std::ranges::any_of(found.addresses,
                               [&](const auto &one) { return one.host == host && one.port == "7204"; });
}

void an_address_is_itself(void **) {
    for (const std::string host : {"127.0.0.1", "198.51.100.1", "::1", "2001:db8::1"}) {
        const auto found = cli::listen_addresses({host, "7204"}).value();
        assert_false(found.any);
        assert_int_equal(found.addresses.size(), 1);
        assert_true(has(found, host));
    }
}

void a_wildcard_is_each_address(void **) {
    const auto four = cli::listen_addresses({"0.0.0.0", "7204"}).value();
    const auto both = cli::listen_addresses({"::", "7204"}).value();
    assert_true(four.any && both.any);
    assert_true(has(four, "127.0.0.1") && has(both, "127.0.0.1"));
    assert_true(four.addresses.size() <= both.addresses.size());
    for (const auto &one : four.addresses) {
        assert_false(one.host.contains(':'));
        assert_true(has(both, one.host));
    }
    assert_true(
        std::ranges::none_of(both.addresses, [](const auto &one) { return one.host.starts_with("fe80"); }));
}

void public_addresses_are_known(void **) {
    for (const char *const host :
         {"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1",
          "192.0.1.1", "192.169.0.1", "223.255.255.255", "2001:4860::1", "3fff::1"}) {
        assert_true(cli::is_public(host));
    }
    for (const char *const host :
         {"0.0.0.0",        "10.1.2.3",        "100.64.0.1",  "127.0.0.1",  "169.254.1.1",  "172.16.0.1",
          "172.31.255.255", "192.0.2.2",       "192.168.1.1", "198.19.0.1", "198.51.100.1", "203.0.113.9",
          "224.0.0.1",      "255.255.255.255", "::1",         "fe80::1",    "fd77::1",      "2001:db8::1",
          "ff02::1",        "fe80::1%lo",      "name"}) {
        assert_false(cli::is_public(host));
    }
}

void a_name_is_looked_up(void **) {
    const auto found = cli::listen_addresses({"localhost", "7204"}).value();
    assert_true(has(found, "127.0.0.1") || has(found, "::1"));
    assert_fails(cli::listen_addresses({"no.such.host.invalid", "7204"}), "no.such.host.invalid: ");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_itself),
        cmocka_unit_test(a_wildcard_is_each_address),
        cmocka_unit_test(public_addresses_are_known),
        cmocka_unit_test(a_name_is_looked_up),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
