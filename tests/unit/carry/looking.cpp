// SPDX-License-Identifier: BSD-3-Clause
// carry/looking: tests when a call looks before it sleeps.
#include "carry/looking.hpp"

#include "../base/check.hpp"

namespace {

using namespace std::chrono_literals;
using carry::Looks;

// Returns how many calls sleep at once before the next one that looks.
unsigned left_out(Looks &looks) {
    unsigned count = 0;
    while (!looks.is_due()) {
        ++count;
    }
    return count;
}

void takes(Looks &looks, unsigned count, std::chrono::microseconds time, bool found) {
    for (unsigned i = 0; i < count; ++i) {
        looks.took(time, found);
    }
}

void a_look_that_finds_something_is_followed_by_another(void **) {
    Looks looks;
    takes(looks, 1000, 10us, true);
    assert_int_equal(left_out(looks), 0);
}

void looks_in_vain_become_rare(void **) {
    Looks looks;
    for (const unsigned expected : {1U, 3U, 7U, 15U, 31U, 63U, 127U, 255U, 255U}) {
        looks.took(carry::looks_for, false);
        assert_int_equal(left_out(looks), expected);
    }
    takes(looks, 1, 10us, true);
    assert_int_equal(left_out(looks), 0);
}

// Another program has the processor for 4 ms each time that the thread yields it.
void looks_that_lose_the_processor_become_rare(void **) {
    Looks looks;
    takes(looks, 4, 4ms, true);
    assert_int_equal(left_out(looks), 255);
    looks.took(4ms, true);
    assert_int_equal(left_out(looks), 511);
    looks.took(4ms, false);
    assert_int_equal(left_out(looks), 1023);
    takes(looks, 20, 4ms, true);
    assert_int_equal(left_out(looks), (1 << 13) - 1);
}

// A thread that has much to do finds most of it at once, and loses the processor at the end of its time.
void a_rare_loss_of_the_processor_changes_nothing(void **) {
    Looks looks;
    for (int slice = 0; slice < 100; ++slice) {
        takes(looks, 200, 2us, true);
        looks.took(4ms, true);
        assert_int_equal(left_out(looks), 0);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_look_that_finds_something_is_followed_by_another),
        cmocka_unit_test(looks_in_vain_become_rare),
        cmocka_unit_test(looks_that_lose_the_processor_become_rare),
        cmocka_unit_test(a_rare_loss_of_the_processor_changes_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
