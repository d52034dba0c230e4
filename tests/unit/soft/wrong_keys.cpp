// SPDX-License-Identifier: BSD-3-Clause
// soft/wrong_keys: tests how long an address that guesses keys has to wait,
// and when the device forgets its guesses.
#include "soft/ground/wrong_keys.hpp"

#include "soft/ground/limits.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

using namespace std::chrono_literals;
using base::Origin;
using soft::WrongKeys;

constexpr base::Origin guesser{1};
constexpr base::Origin other{2};
const base::Clock::time_point start{24h};

void guess(WrongKeys &table, base::Origin origin, std::size_t times, base::Clock::time_point now = start) {
    for (std::size_t i = 0; i < times; ++i) {
        table.note(origin, now);
    }
}

void some_wrong_keys_cost_nothing(void **) {
    WrongKeys table;
    assert_true(table.turn(guesser, start) == 0ms);
    guess(table, guesser, soft::limits::in_force().wrong_keys_a_minute);
    assert_true(table.turn(guesser, start) == 0ms);
    assert_false(table.guesses(guesser, start));
}

void the_delay_grows_up_to_the_longest(void **) {
    WrongKeys table;
    const std::size_t limit = soft::limits::in_force().wrong_keys_a_minute;
    guess(table, guesser, limit + limit / 4);
    assert_true(table.guesses(guesser, start));
    assert_false(table.guesses(other, start));
    assert_true(table.turn(guesser, start) == soft::limits::longest_guess_delay / 4);
    // After that each turn follows the one before.
    guess(table, guesser, limit / 4);
    const auto second = soft::limits::longest_guess_delay * 3 / 4;
    assert_true(table.turn(guesser, start) == second);
    guess(table, guesser, 10 * limit);
    assert_true(table.turn(guesser, start) == second + soft::limits::longest_guess_delay);
    assert_true(table.turn(other, start) == 0ms);
}

// Connections that are made side by side guess no faster, and only a limited number of them waits.
void turns_follow_one_another(void **) {
    WrongKeys table;
    guess(table, guesser, 10 * soft::limits::in_force().wrong_keys_a_minute);
    for (auto wait = soft::limits::longest_guess_delay; wait <= soft::limits::longest_guess_wait;
         wait += soft::limits::longest_guess_delay) {
        assert_true(table.turn(guesser, start) == wait);
    }
    assert_false(table.turn(guesser, start).has_value());
    assert_true(table.turn(other, start) == 0ms);
    // One of the connections had its turn.
    assert_true(table.turn(guesser, start + soft::limits::longest_guess_delay).has_value());
    assert_false(table.turn(guesser, start + soft::limits::longest_guess_delay).has_value());
    assert_true(table.turn(guesser, start + 60min) == 0ms);
}

// Guesses of connections from before the first delay count too, so the next connections wait for all of them.
void so_many_a_minute_are_forgotten(void **) {
    WrongKeys table;
    const std::size_t limit = soft::limits::in_force().wrong_keys_a_minute;
    guess(table, guesser, 4 * limit);
    assert_true(table.turn(guesser, start + 60s) == soft::limits::longest_guess_delay);
    assert_true(table.turn(guesser, start + 150s) == soft::limits::longest_guess_delay / 2);
    assert_true(table.turn(guesser, start + 180s) == 0ms);
    // The number of guesses a minute that the limit allows still causes no delay.
    guess(table, guesser, limit, start + 240s);
    assert_true(table.turn(guesser, start + 240s) == 0ms);
}

void all_are_forgotten_in_an_hour(void **) {
    WrongKeys table;
    guess(table, guesser, 100 * soft::limits::in_force().wrong_keys_a_minute);
    assert_true(table.turn(guesser, start + 50min) == soft::limits::longest_guess_delay);
    assert_true(table.turn(guesser, start + 60min) == 0ms);
}

// A guesser with many addresses does not make the table forget another one that guesses more.
void those_with_the_fewest_are_forgotten(void **) {
    WrongKeys table;
    guess(table, guesser, 2 * soft::limits::in_force().wrong_keys_a_minute);
    for (std::uint64_t i = 0; i < 2 * WrongKeys::most_origins; ++i) {
        table.note(base::Origin{100 + i}, start);
    }
    assert_true(table.turn(guesser, start) == soft::limits::longest_guess_delay);
    // There is room for an address that begins to guess then.
    guess(table, other, 2 * soft::limits::in_force().wrong_keys_a_minute);
    assert_true(table.turn(other, start) == soft::limits::longest_guess_delay);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(some_wrong_keys_cost_nothing),
                                cmocka_unit_test(the_delay_grows_up_to_the_longest),
                                cmocka_unit_test(turns_follow_one_another),
                                cmocka_unit_test(so_many_a_minute_are_forgotten),
                                cmocka_unit_test(all_are_forgotten_in_an_hour),
                                cmocka_unit_test(those_with_the_fewest_are_forgotten)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
