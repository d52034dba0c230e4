// SPDX-License-Identifier: BSD-3-Clause
// soft/progress: a poller with nothing to do serves the groups of the engine until it stops polling. The
// engine does not help a poller that polls its own group often.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

// This comes last, because it asserts.
#include "listener.hpp"

namespace {

using test::Clock;
using test::engine_ns;
using test::Listener;
using test::patience;

void a_dense_poller_reads_what_the_engine_would(void **) {
    Listener listener;
    std::atomic<Clock::time_point> last{};
    const auto end = Clock::now() + patience;
    while (listener.read_by_tester == 0) {
        assert_true(Clock::now() < end);
        speak_and_wait(listener, [&] { listener.group().engine().assist(last); });
    }
}

void the_engine_goes_on_when_the_poller_stops_without_a_word(void **) {
    Listener listener;
    std::atomic<Clock::time_point> last{};
    for (int i = 0; i < 1000; ++i) {
        listener.group().engine().assist(last);
    }
    speak_and_wait(listener, [] { std::this_thread::yield(); });
    assert_int_equal(listener.read_by_engine, 1);
}

void the_engine_goes_on_when_the_poller_says_so(void **) {
    Listener listener;
    std::atomic<Clock::time_point> last{};
    for (int i = 0; i < 1000; ++i) {
        listener.group().engine().assist(last);
    }
    listener.group().engine().end_assistance();
    speak_and_wait(listener, [] { std::this_thread::yield(); });
    assert_int_equal(listener.read_by_engine, 1);
}

void a_poller_that_comes_seldom_is_left_alone(void **) {
    Listener listener;
    for (int i = 0; i < 100; ++i) {
        std::atomic<Clock::time_point> long_ago{};
        listener.speak();
        listener.group().engine().assist(long_ago);
        speak_and_wait(listener, [] { std::this_thread::yield(); });
    }
    assert_int_equal(listener.read_by_tester, 0);
}

// Returns how long this thread has run.
unsigned long own_ns() {
    timespec time{};
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
    return static_cast<unsigned long>(time.tv_sec) * 1'000'000'000UL +
           static_cast<unsigned long>(time.tv_nsec);
}

// Without this, each byte would wake the engine, which would find the byte taken.
void a_thread_that_looks_often_does_not_wake_the_engine(void **) {
    Listener listener;
    speak_and_wait(listener, [] { std::this_thread::yield(); });  // the engine tells its thread
    const auto end = Clock::now() + patience;
    unsigned long engines = 0;
    unsigned long own = 0;
    // Each round is measured by itself, so that a round in which another
    // process had the processor spoils no other.
    do {
        engines = engine_ns(listener);
        own = own_ns();
        for (int byte = 0; byte < 30000; ++byte) {
            speak_and_wait(listener, [&] { listener.group().poll(false); });
        }
        assert_true(Clock::now() < end);
    } while (8 * (engine_ns(listener) - engines) > own_ns() - own);
    listener.read_by_engine = 0;
    speak_and_wait(listener, [] { std::this_thread::yield(); });  // the poller has stopped and told nobody
    assert_int_equal(listener.read_by_engine, 1);
}

void one_that_hands_over_is_helped_at_once(void **) {
    Listener listener;
    const auto end = Clock::now() + patience;
    for (auto shortest = Clock::duration::max(); shortest >= std::chrono::microseconds{500};) {
        assert_true(Clock::now() < end);
        for (const auto until = Clock::now() + std::chrono::milliseconds{2}; Clock::now() < until;) {
            listener.group().poll(false);
        }
        listener.group().hand_over();
        speak_and_wait(listener, [] { std::this_thread::yield(); });
        const auto begun = Clock::now();
        speak_and_wait(listener, [] { std::this_thread::yield(); });
        shortest = std::min(shortest, Clock::now() - begun);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_dense_poller_reads_what_the_engine_would),
        cmocka_unit_test(the_engine_goes_on_when_the_poller_stops_without_a_word),
        cmocka_unit_test(the_engine_goes_on_when_the_poller_says_so),
        cmocka_unit_test(a_poller_that_comes_seldom_is_left_alone),
        cmocka_unit_test(a_thread_that_looks_often_does_not_wake_the_engine),
        cmocka_unit_test(one_that_hands_over_is_helped_at_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
