// SPDX-License-Identifier: BSD-3-Clause
// soft/progress: a thread that waits for a group's descriptor serves the group, and
// the engine does the work that it leaves.
#include <chrono>
#include <thread>

#include "base/readable.hpp"

// This comes last, because it asserts.
#include "listener.hpp"

namespace {

using test::Clock;
using test::engine_ns;
using test::Listener;
using test::patience;

void yield() {
    std::this_thread::yield();
}

// Two samples that are a few of the engine's ticks apart are equal once it sleeps without a time-out.
void assert_that_the_engine_sleeps(const Listener &listener) {
    const auto end = Clock::now() + patience;
    for (unsigned long before = 0; before != engine_ns(listener);) {
        assert_true(Clock::now() < end);
        before = engine_ns(listener);
        std::this_thread::sleep_for(std::chrono::milliseconds{200});
    }
}

// Polls, though so late that the engine would have been first.
void attend(Listener &listener) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    listener.group().poll(false);
}

void the_engine_reads_what_a_thread_outside_leaves(void **) {
    Listener listener;
    listener.group().begin_outside();
    for (unsigned byte = 1; byte <= 100; ++byte) {
        speak_and_wait(listener, yield);
        assert_int_equal(listener.read_by_engine, byte);
    }
    listener.group().end_outside();
}

void it_reads_at_once_what_comes_later(void **) {
    Listener listener;
    listener.group().begin_outside();
    speak_and_wait(listener, yield);
    auto shortest = Clock::duration::max();
    for (int byte = 0; byte < 100; ++byte) {
        const auto begun = Clock::now();
        speak_and_wait(listener, yield);
        shortest = std::min(shortest, Clock::now() - begun);
    }
    assert_true(shortest < std::chrono::milliseconds{25});
    listener.group().end_outside();
}

void it_reads_on_when_a_turn_does_not_take_all(void **) {
    Listener listener;
    listener.group().begin_outside();
    for (int byte = 0; byte < 3; ++byte) {
        listener.speak();
    }
    const auto end = Clock::now() + patience;
    while (listener.read_by_engine != 3) {
        assert_true(Clock::now() < end);
        yield();
    }
    listener.group().end_outside();
}

void a_thread_that_looks_again_has_its_group_back(void **) {
    Listener listener;
    listener.group().begin_outside();
    speak_and_wait(listener, yield);
    unsigned longest = 0;
    const auto end = Clock::now() + patience;
    for (unsigned alone = 0; longest < 20; alone = listener.read_by_engine == 0 ? alone + 1 : 0) {
        assert_true(Clock::now() < end);
        listener.read_by_engine = 0;
        speak_and_wait(listener, [&] { attend(listener); });
        longest = std::max(longest, alone);
    }
    listener.group().end_outside();
}

void an_idle_program_wakes_nobody(void **) {
    Listener listener;
    speak_and_wait(listener, yield);  // the engine tells its thread
    listener.group().begin_outside();
    assert_that_the_engine_sleeps(listener);
    listener.group().end_outside();
}

// A completion of the engine stays in the queue, and keeps the descriptor readable.
void nor_does_one_that_takes_nothing(void **) {
    Listener listener;
    auto told = base::Readable::create();
    assert_true(told.has_value());
    assert_true(listener.group().add_descriptor(told->fd()).has_value());
    listener.group().begin_outside();
    speak_and_wait(listener, yield);
    told->set(true);
    assert_that_the_engine_sleeps(listener);
    speak_and_wait(listener, yield);  // and still hears its peers
    assert_int_equal(listener.read_by_tester, 0);
    listener.group().end_outside();
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_engine_reads_what_a_thread_outside_leaves),
        cmocka_unit_test(it_reads_at_once_what_comes_later),
        cmocka_unit_test(it_reads_on_when_a_turn_does_not_take_all),
        cmocka_unit_test(a_thread_that_looks_again_has_its_group_back),
        cmocka_unit_test(an_idle_program_wakes_nobody),
        cmocka_unit_test(nor_does_one_that_takes_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
