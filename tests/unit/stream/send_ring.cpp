// SPDX-License-Identifier: BSD-3-Clause
// stream/send_ring: tests that posted messages take bytes and places, which
// come back in the order of the messages.
#include "stream/send_ring.hpp"

#include "../base/check.hpp"

namespace {

using namespace stream;

void bytes_come_back_in_order(void **) {
    SendRing ring{100, 10, 2};
    assert_true(ring.idle());
    assert_int_equal(ring.room(3), 100);
    ring.posted(70, 2);
    ring.posted(30, 2);
    assert_int_equal(ring.room(3), 0);
    assert_true(ring.completed());
    assert_int_equal(ring.free(), 70);
    assert_int_equal(ring.front(50).offset, 0);
    assert_true(ring.completed());
    assert_true(ring.idle());
    assert_int_equal(ring.free(), 100);
    assert_false(ring.completed());
}

void bytes_go_round_the_end(void **) {
    SendRing ring{100, 10, 2};
    ring.posted(60, 2);
    ring.posted(10, 2);
    assert_true(ring.completed());
    assert_int_equal(ring.front(50).offset, 70);
    assert_int_equal(ring.front(50).size, 30);
    assert_int_equal(ring.front(20).size, 20);
    ring.posted(50, 3);
    assert_int_equal(ring.front(40).offset, 20);
}

void a_buffer_that_is_empty_begins_anew(void **) {
    SendRing ring{100, 10, 2};
    ring.posted(70, 2);
    ring.posted(0, 1);
    assert_true(ring.completed());
    assert_int_equal(ring.front(50).offset, 70);
    assert_true(ring.completed());
    assert_int_equal(ring.front(50).offset, 0);
    assert_int_equal(ring.front(100).size, 100);
}

void messages_without_bytes_have_places_kept_for_them(void **) {
    SendRing ring{100, 6, 2};
    ring.posted(1, 3);
    assert_int_equal(ring.room(2), 0);
    assert_int_equal(ring.room(1), 99);
    assert_true(ring.has_place(2));
    ring.posted(0, 2);
    ring.posted(0, 1);
    assert_false(ring.has_place(1));
    assert_true(ring.completed());
    assert_true(ring.has_place(3));
    assert_false(ring.has_place(4));
}

void silent_messages_complete_with_the_next_that_is_not(void **) {
    SendRing ring{100000, 24, 8};  // four of 16 places may be silent
    for (int message = 0; message < 4; ++message) {
        assert_true(ring.may_be_silent(10));
        ring.posted_silently(10);
    }
    assert_true(ring.idle());
    assert_false(ring.completed());
    assert_int_equal(ring.free(), 99960);
    assert_false(ring.may_be_silent(10));
    ring.posted(10, 1);
    assert_false(ring.idle());
    assert_true(ring.may_be_silent(10));
    ring.posted_silently(10);
    assert_true(ring.completed());
    assert_int_equal(ring.free(), 99990);
    assert_true(ring.has_place(23));
    assert_false(ring.has_place(24));
    assert_true(ring.idle());
}

void nobody_waits_for_silent_messages(void **) {
    SendRing ring{8192, 400, 8};
    std::size_t silent = 0;
    for (; ring.may_be_silent(1024); ++silent) {
        ring.posted_silently(1024);
    }
    assert_int_equal(silent, 4);
    assert_int_equal(ring.free(), 4096);
    // With so small a buffer, a stream takes no more bytes before all of it is free.
    assert_false((SendRing{send_low_water, 400, 8}.may_be_silent(1)));
    assert_false((SendRing{100000, 11, 8}.may_be_silent(1)));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_back_in_order),
        cmocka_unit_test(bytes_go_round_the_end),
        cmocka_unit_test(a_buffer_that_is_empty_begins_anew),
        cmocka_unit_test(messages_without_bytes_have_places_kept_for_them),
        cmocka_unit_test(silent_messages_complete_with_the_next_that_is_not),
        cmocka_unit_test(nobody_waits_for_silent_messages),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
