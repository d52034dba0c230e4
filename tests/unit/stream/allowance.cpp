// SPDX-License-Identifier: BSD-3-Clause
// stream/allowance: tests credits and windows from a peer, also from one that lies.
#include "stream/allowance.hpp"

#include "../base/check.hpp"

namespace {

using namespace stream;

constexpr KeyedMemory first{.address = 0x1000, .key = 7, .length = 100};
constexpr KeyedMemory second{.address = 0x1064, .key = 7, .length = 100};

void bytes_go_where_the_windows_are(void **) {
    Allowance allowance{4, first};
    assert_true(allowance.open(second));
    assert_int_equal(allowance.room(), 100);
    assert_true(allowance.take(60) == (KeyedMemory{.address = 0x1000, .key = 7, .length = 60}));
    assert_int_equal(allowance.room(), 40);
    assert_true(allowance.take(40) == (KeyedMemory{.address = 0x103c, .key = 7, .length = 40}));
    assert_true(allowance.take(1) == (KeyedMemory{.address = 0x1064, .key = 7, .length = 1}));
    assert_int_equal(allowance.room(), 99);
}

void nothing_without_a_window_or_a_credit(void **) {
    Allowance allowance{2, first};
    (void)allowance.take(100);
    assert_int_equal(allowance.room(), 0);
    assert_true(allowance.has_credit());
    assert_true(allowance.open(second));
    (void)allowance.take(1);
    assert_int_equal(allowance.room(), 0);
    assert_false(allowance.has_credit());
    assert_true(allowance.extend(4));
    allowance.take_credit();
    allowance.take_credit();
    assert_false(allowance.has_credit());
}

void the_counters_go_round(void **) {
    constexpr std::uint16_t credits = 65534;
    Allowance allowance{credits, {.address = 0, .key = 7, .length = 400000}};
    std::uint16_t taken = 0;
    for (int round = 0; round < 200000; ++round) {
        assert_int_equal(allowance.take(1).address, round);
        if (round % 30000 == 29999) {
            taken = static_cast<std::uint16_t>(taken + 30000);
            assert_true(allowance.extend(static_cast<std::uint16_t>(taken + credits)));
        }
    }
}

void a_peer_takes_only_what_was_sent(void **) {
    Allowance allowance{10, first};
    assert_false(allowance.extend(11));
    assert_false(allowance.extend(9));
    (void)allowance.take(1);
    assert_false(allowance.extend(12));
    assert_true(allowance.extend(11));
    assert_true(allowance.extend(11));
    assert_false(allowance.extend(10));
    assert_false(allowance.extend(0));
}

void a_window_that_is_none(void **) {
    Allowance allowance{10, first};
    assert_false(allowance.open({.address = 0, .key = 7, .length = 0}));
    assert_false(allowance.open({.address = UINT64_MAX, .key = 7, .length = 2}));
    assert_true(allowance.open(second));
    assert_false(allowance.open(second));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_where_the_windows_are),
        cmocka_unit_test(nothing_without_a_window_or_a_credit),
        cmocka_unit_test(the_counters_go_round),
        cmocka_unit_test(a_peer_takes_only_what_was_sent),
        cmocka_unit_test(a_window_that_is_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
