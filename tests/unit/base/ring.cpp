// SPDX-License-Identifier: BSD-3-Clause
// base/ring: tests that items come out first in, first out, around the end of the
// storage as often as one likes.
#include "base/ring.hpp"

#include <deque>
#include <random>
#include <utility>

#include "check.hpp"

namespace {

using base::Ring;

void begins_empty(void **) {
    Ring<int> ring{3};
    assert_true(ring.empty());
    assert_false(ring.full());
    assert_int_equal(ring.size(), 0);
    assert_int_equal(ring.capacity(), 3);
}

void a_ring_of_nothing_is_empty_and_full(void **) {
    const Ring<int> ring{0};
    assert_true(ring.empty());
    assert_true(ring.full());
}

void keeps_the_order(void **) {
    Ring<int> ring{3};
    for (int value = 0; value < 3; ++value) {
        ring.push(value);
    }
    assert_true(ring.full());
    for (int value = 0; value < 3; ++value) {
        assert_int_equal(ring.front(), value);
        ring.pop();
    }
    assert_true(ring.empty());
}

void takes_back_the_youngest(void **) {
    Ring<int> ring{2};
    ring.push(1);
    ring.push(2);
    ring.pop_back();
    assert_int_equal(ring.back(), 1);
    assert_int_equal(ring.front(), 1);
    ring.push(3);
    assert_int_equal(ring.back(), 3);
}

void clears_in_the_middle(void **) {
    Ring<int> ring{2};
    ring.push(1);
    ring.pop();
    ring.push(2);
    ring.push(3);
    ring.clear();
    assert_true(ring.empty());
    ring.push(4);
    assert_int_equal(ring.front(), 4);
    assert_int_equal(ring.size(), 1);
}

// The places of other items stay where they are, because the device keeps pointers to them.
void an_item_does_not_move(void **) {
    Ring<int> ring{3};
    ring.push(1);
    int *const second = &ring.push(2);
    ring.pop();
    ring.push(3);
    ring.push(4);
    assert_ptr_equal(&ring.front(), second);
    assert_int_equal(*second, 2);
}

// An empty ring begins anew, so that few items take few places, however long they come and go.
void an_empty_ring_begins_at_its_first_place(void **) {
    Ring<int> ring{3};
    const int *const first = &ring.push(1);
    ring.pop();
    assert_ptr_equal(&ring.push(2), first);
    ring.push(3);
    ring.pop();
    ring.clear();
    assert_ptr_equal(&ring.push(4), first);
}

void behaves_as_a_deque(void **) {
    constexpr unsigned seed = 7204;
    constexpr int steps = 20'000;
    std::mt19937 random{seed};
    Ring<unsigned> ring{7};
    std::deque<unsigned> model;
    for (int step = 0; step < steps; ++step) {
        const unsigned value = static_cast<unsigned>(random());
        if (value % 8 < 4 && !ring.full()) {
            ring.push(value);
            model.push_back(value);
        } else if (value % 8 < 7 && !ring.empty()) {
            ring.pop();
            model.pop_front();
        } else if (!ring.empty()) {
            ring.pop_back();
            model.pop_back();
        }
        assert_int_equal(ring.size(), model.size());
        assert_int_equal(ring.full(), model.size() == ring.capacity());
        for (std::size_t i = 0; i < model.size(); ++i) {
            assert_int_equal(ring.at(i), model[i]);
        }
    }
}

void moves_as_a_whole(void **) {
    Ring<int> from{2};
    from.push(5);
    Ring<int> to{1};
    to = std::move(from);
    assert_int_equal(to.capacity(), 2);
    assert_int_equal(to.front(), 5);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(begins_empty),
                                cmocka_unit_test(a_ring_of_nothing_is_empty_and_full),
                                cmocka_unit_test(keeps_the_order),
                                cmocka_unit_test(takes_back_the_youngest),
                                cmocka_unit_test(clears_in_the_middle),
                                cmocka_unit_test(an_item_does_not_move),
                                cmocka_unit_test(an_empty_ring_begins_at_its_first_place),
                                cmocka_unit_test(behaves_as_a_deque),
                                cmocka_unit_test(moves_as_a_whole)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
