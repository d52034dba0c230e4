// SPDX-License-Identifier: BSD-3-Clause
// base/watched_mutex: a SmallMutex that race detectors see. They know a mutex by the functions of the C
// library, so below one it is a mutex of that library.
#pragma once

#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "base/small_mutex.hpp"

namespace base {

// Returns whether helgrind, drd or ThreadSanitizer watches this process.
[[nodiscard]] bool is_watched_for_races();

// Works like Mutex. To take it and to release it costs three inline instructions each.
class CAPABILITY("mutex") WatchedMutex {
public:
    WatchedMutex() = default;
    WatchedMutex(const WatchedMutex &) = delete;
    WatchedMutex &operator=(const WatchedMutex &) = delete;

    [[gnu::always_inline]] void lock() ACQUIRE() {
        if (is_watched_) [[unlikely]] {
            watched_.take();
        } else {
            small_.take();
        }
    }
    [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) RPMA_THREAD_SAFETY(no_thread_safety_analysis) {
        return is_watched_ ? watched_.try_lock() : small_.try_lock();
    }
    // Tries it now, and again and again until then.
    [[nodiscard]] bool try_lock_until(Clock::time_point until) TRY_ACQUIRE(true)
        RPMA_THREAD_SAFETY(no_thread_safety_analysis) {
        while (!try_lock()) {
            if (Clock::now() >= until) {
                return false;
            }
            std::this_thread::sleep_for(between_tries);
        }
        return true;
    }
    [[gnu::always_inline]] void unlock() RELEASE() {
        if (is_watched_) [[unlikely]] {
            watched_.leave();
        } else {
            small_.leave();
        }
    }
    // Tells the analysis that the mutex is held, where it cannot see that. A debug build checks it.
    void assert_held() const ASSERT_CAPABILITY(this) {
        if (is_watched_) {
            watched_.assert_held();
        } else {
            small_.assert_held();
        }
    }

private:
    static constexpr std::chrono::microseconds between_tries{50};

    const bool is_watched_ = is_watched_for_races();
    SmallMutex small_;
    Mutex watched_;
};

}  // namespace base
