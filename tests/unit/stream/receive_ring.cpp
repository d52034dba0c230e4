// SPDX-License-Identifier: BSD-3-Clause
// stream/receive_ring: tests what a peer may write and when it may write again. Also tests its two halves
// with stream/allowance, which is the other end of the same protocol.
#include "stream/receive_ring.hpp"

#include <random>
#include <utility>

#include "stream/allowance.hpp"

#include "../base/check.hpp"

namespace {

using namespace stream;

void the_second_half_is_owed_at_once(void **) {
    ReceiveRing ring{100, 10};
    assert_true(ring.owes_update());
    const auto update = ring.update();
    assert_int_equal(update.limit, 10);
    assert_true(update.window.has_value());
    assert_int_equal(update.window->offset, 100);
    assert_int_equal(update.window->size, 100);
    assert_false(ring.owes_update());
}

void bytes_come_out_in_order_and_round_the_end(void **) {
    ReceiveRing ring{100, 10};
    (void)ring.update();
    assert_true(ring.arrived(100) && ring.arrived(50));
    assert_int_equal(ring.readable(), 150);
    ring.consume(120);
    const auto update = ring.update();
    assert_int_equal(update.limit, 11);  // the second message is not read to its end
    assert_int_equal(update.window->offset, 0);
    assert_true(ring.arrived(50) && ring.arrived(100));
    assert_int_equal(ring.front().offset, 120);
    assert_int_equal(ring.front().size, 80);
    assert_int_equal(ring.front(80).offset, 0);
    assert_int_equal(ring.front(80).size, 100);
    ring.consume(180);
    assert_int_equal(ring.readable(), 0);
    assert_int_equal(ring.update().window->offset, 100);
    assert_int_equal(ring.update().window->offset, 0);
    assert_int_equal(ring.update().limit, 14);
}

void it_is_full_without_room_or_credits(void **) {
    ReceiveRing small{100, 10};
    (void)small.update();
    assert_true(small.arrived(100) && small.arrived(99));
    assert_false(small.is_full());
    assert_true(small.arrived(1));
    assert_true(small.is_full());
    ReceiveRing large{100, 2};
    assert_true(large.arrived(1));
    assert_false(large.is_full());
    assert_true(large.arrived(1));
    assert_true(large.is_full());
    large.consume(1);
    (void)large.update();
    assert_false(large.is_full());
}

void credits_go_back_by_the_half(void **) {
    ReceiveRing ring{100000, 10};
    (void)ring.update();
    for (int message = 0; message < 4; ++message) {
        assert_true(ring.arrived(1));
        ring.consume(1);
        assert_false(ring.owes_update());
    }
    assert_true(ring.arrived_empty());
    assert_true(ring.owes_update());
    const auto update = ring.update();
    assert_int_equal(update.limit, 15);
    assert_false(update.window.has_value());
}

void what_a_peer_may_not_write(void **) {
    ReceiveRing ring{100, 3};
    assert_false(ring.arrived(0));
    assert_false(ring.arrived(101));
    assert_false(ring.arrived(max_value));
    assert_true(ring.arrived(60));
    assert_false(ring.arrived(41));  // across the end of the half
    assert_true(ring.arrived(40));
    assert_false(ring.arrived(1));  // the second half is not the peer's yet
    (void)ring.update();
    assert_true(ring.arrived(1));
    assert_false(ring.arrived(1));  // without a credit
    assert_false(ring.arrived_empty());
    ring.consume(101);
    assert_false(ring.arrived(1));  // the credit is not the peer's before it is told
    (void)ring.update();
    assert_true(ring.arrived(1));
}

// With any sizes and at any pace, the writer never finds less room than the
// reader gave, and neither end waits for ever.
void both_ends_agree(void **) {
    std::mt19937 random{11};
    const auto dice = [&] { return static_cast<std::uint32_t>(random()); };
    for (const auto &[half, credits] : {std::pair{1U, 2}, {7U, 2}, {64U, 16}, {65536U, 65534}, {1U, 65534}}) {
        const auto most = static_cast<std::uint16_t>(credits);
        ReceiveRing ring{half, most};
        Allowance allowance{most, {.address = 0, .key = 1, .length = half}};
        std::uint64_t written = 0;
        std::uint64_t read = 0;
        for (int step = 0; step < 300000; ++step) {
            const std::uint32_t room = allowance.room();
            if (room != 0 && dice() % 2 == 0) {
                const std::uint32_t bytes = 1 + dice() % room;
                assert_int_equal(allowance.take(bytes).address, written % (2ULL * half));
                assert_true(ring.arrived(bytes));
                written += bytes;
            } else if (ring.readable() != 0) {
                assert_int_equal(ring.front().offset, read % (2ULL * half));
                const std::size_t bytes = 1 + dice() % ring.readable();
                ring.consume(bytes);
                read += bytes;
            }
            while (ring.owes_update()) {
                const auto update = ring.update();
                assert_true(allowance.extend(update.limit));
                assert_true(!update.window ||
                            allowance.open({.address = update.window->offset, .key = 1, .length = half}));
            }
            assert_int_equal(ring.readable(), written - read);
            assert_true(ring.readable() != 0 || allowance.room() != 0);
        }
        assert_true(written > half);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_second_half_is_owed_at_once),
        cmocka_unit_test(bytes_come_out_in_order_and_round_the_end),
        cmocka_unit_test(it_is_full_without_room_or_credits),
        cmocka_unit_test(credits_go_back_by_the_half),
        cmocka_unit_test(what_a_peer_may_not_write),
        cmocka_unit_test(both_ends_agree),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
