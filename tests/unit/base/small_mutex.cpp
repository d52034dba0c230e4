// SPDX-License-Identifier: BSD-3-Clause
// base/small_mutex, base/watched_mutex: tests that one thread at a time has the mutex, and that the threads
// that wait get it.
#include "base/small_mutex.hpp"

#include <latch>
#include <mutex>
#include <thread>
#include <vector>

#include "base/watched_mutex.hpp"

// check.hpp comes last, because it has macros with everyday names.
#include "check.hpp"

namespace {

template <typename Mutex>
void a_mutex_is_taken_once(void **) {
    Mutex mutex;
    if (!mutex.try_lock()) {
        fail();
        return;
    }
    assert_false(mutex.try_lock());
    mutex.unlock();
    const std::unique_lock lock{mutex};
    assert_false(mutex.try_lock());
}

template <typename Mutex>
void threads_take_turns(void **) {
    constexpr int threads = 4;
    constexpr int rounds = 20000;
    Mutex mutex;
    long count = 0;
    {
        std::latch all{threads};
        std::vector<std::jthread> workers;
        workers.reserve(threads);
        for (int i = 0; i < threads; ++i) {
            workers.emplace_back([&] {
                all.arrive_and_wait();
                for (int round = 0; round < rounds; ++round) {
                    const std::scoped_lock lock{mutex};
                    ++count;
                }
            });
        }
    }
    assert_int_equal(count, threads * rounds);
    const bool is_free = mutex.try_lock();
    assert_true(is_free);
    if (is_free) {
        mutex.unlock();
    }
}

// Each thread sleeps, because the mutex is taken until all threads wait for it or are about to. The thread
// that gets the mutex leaves it to the next.
template <typename Mutex>
void all_that_wait_are_woken(void **) {
    constexpr int threads = 8;
    Mutex mutex;
    int count = 0;
    {
        std::unique_lock held{mutex};
        std::latch all{threads + 1};
        std::vector<std::jthread> sleepers;
        sleepers.reserve(threads);
        for (int i = 0; i < threads; ++i) {
            sleepers.emplace_back([&] {
                all.count_down();
                const std::scoped_lock lock{mutex};
                ++count;
            });
        }
        all.arrive_and_wait();
        assert_int_equal(count, 0);
        held.unlock();
        sleepers.clear();
    }
    assert_int_equal(count, threads);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_mutex_is_taken_once<base::SmallMutex>),
        cmocka_unit_test(a_mutex_is_taken_once<base::WatchedMutex>),
        cmocka_unit_test(threads_take_turns<base::SmallMutex>),
        cmocka_unit_test(threads_take_turns<base::WatchedMutex>),
        cmocka_unit_test(all_that_wait_are_woken<base::SmallMutex>),
        cmocka_unit_test(all_that_wait_are_woken<base::WatchedMutex>),
    };
    return cmocka_run_group_tests_name("base_small_mutex", tests, nullptr, nullptr);
}
