// SPDX-License-Identifier: BSD-3-Clause
// soft/progress: a poller with nothing to do serves the groups that are the engine's, until it stops.
#include <atomic>
#include <thread>

// Last, as it wants.
#include "listener.hpp"

namespace {

using test::Clock;
using test::Listener;
using test::patience;

void a_dense_poller_reads_what_the_engine_would(void **) {
    Listener listener;
    std::atomic<Clock::time_point> last{};
    const auto end = Clock::now() + patience;
    while (listener.read_by_tester == 0) {
        assert_true(Clock::now() < end);
        speak_and_wait(listener, [&last] { soft::Engine::instance().assist(last); });
    }
}

void the_engine_goes_on_when_the_poller_stops_without_a_word(void **) {
    Listener listener;
    std::atomic<Clock::time_point> last{};
    for (int i = 0; i < 1000; ++i) {
        soft::Engine::instance().assist(last);
    }
    speak_and_wait(listener, [] { std::this_thread::yield(); });
    assert_int_equal(listener.read_by_engine, 1);
}

void the_engine_goes_on_when_the_poller_says_so(void **) {
    Listener listener;
    std::atomic<Clock::time_point> last{};
    for (int i = 0; i < 1000; ++i) {
        soft::Engine::instance().assist(last);
    }
    soft::Engine::instance().end_assistance();
    speak_and_wait(listener, [] { std::this_thread::yield(); });
    assert_int_equal(listener.read_by_engine, 1);
}

void a_poller_that_comes_seldom_is_left_alone(void **) {
    Listener listener;
    for (int i = 0; i < 100; ++i) {
        std::atomic<Clock::time_point> long_ago{};
        listener.speak();
        soft::Engine::instance().assist(long_ago);
        speak_and_wait(listener, [] { std::this_thread::yield(); });
    }
    assert_int_equal(listener.read_by_tester, 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_dense_poller_reads_what_the_engine_would),
        cmocka_unit_test(the_engine_goes_on_when_the_poller_stops_without_a_word),
        cmocka_unit_test(the_engine_goes_on_when_the_poller_says_so),
        cmocka_unit_test(a_poller_that_comes_seldom_is_left_alone),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
