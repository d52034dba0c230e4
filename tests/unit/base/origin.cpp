// SPDX-License-Identifier: BSD-3-Clause
// base/origin: tests which addresses count as one, and how large the share of each is.
#include "base/origin.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

// This comes last, because it asserts.
#include "check.hpp"

namespace {

using base::Origin;

Origin at(const char *text, std::uint16_t port = 1) {
    sockaddr_storage address{};
    auto &v4 = reinterpret_cast<sockaddr_in &>(address);
    auto &v6 = reinterpret_cast<sockaddr_in6 &>(address);
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(port);
    }
    return base::origin_of(address);
}

void an_address_of_ipv4_is_one(void **) {
    assert_true(at("10.0.0.1") == at("10.0.0.1", 2));
    assert_true(at("10.0.0.1") != at("10.0.0.2"));
    assert_true(at("10.0.0.1") == at("::ffff:10.0.0.1"));
}

// A host that has one address of a network has the others too.
void a_network_of_ipv6_is_one(void **) {
    assert_true(at("2001:db8:0:1::1") == at("2001:db8:0:1:ffff::2"));
    assert_true(at("2001:db8:0:1::1") != at("2001:db8:0:2::1"));
}

// A program of this host may have all of these.
void the_loopback_is_one(void **) {
    assert_true(at("127.0.0.1") == at("127.0.0.2"));
    assert_true(at("127.0.0.1") == at("127.255.255.254"));
    assert_true(at("127.0.0.1") == at("::1"));
    assert_true(at("127.0.0.1") == at("::ffff:127.9.9.9"));
    assert_true(at("127.0.0.1") != at("126.0.0.1"));
    assert_true(at("127.0.0.1") != at("128.0.0.1"));
}

void neighbours_on_a_link_are_different(void **) {
    assert_true(at("fe80::1") == at("fe80::1", 2));
    assert_true(at("fe80::1") != at("fe80::2"));
}

void shares_are_counted(void **) {
    base::Shares shares;
    const Origin one = at("10.0.0.1");
    const Origin other = at("10.0.0.2");
    assert_int_equal(shares.most(), 0);
    shares.add(one);
    shares.add(other, 7);
    shares.add(one);
    assert_int_equal(shares.of(one), 2);
    assert_int_equal(shares.of(other), 7);
    assert_int_equal(shares.most(), 7);
    shares.remove(other, 7);
    assert_int_equal(shares.of(other), 0);
    assert_int_equal(shares.most(), 2);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(an_address_of_ipv4_is_one), cmocka_unit_test(a_network_of_ipv6_is_one),
        cmocka_unit_test(the_loopback_is_one), cmocka_unit_test(neighbours_on_a_link_are_different),
        cmocka_unit_test(shares_are_counted)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
