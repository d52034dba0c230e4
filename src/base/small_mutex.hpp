// SPDX-License-Identifier: BSD-3-Clause
// base/small_mutex: a mutex for every call, seldom used by two threads at once. To take it and to release it
// costs one inline instruction each; std::mutex calls the C library for 30 each. A thread that has to wait
// sleeps.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cerrno>

#include "base/lock.hpp"
#include "base/thread_safety.hpp"

namespace base {

// Works like std::mutex. It is not recursive, and the thread that took it releases it.
class CAPABILITY("mutex") SmallMutex {
public:
    SmallMutex() = default;
    SmallMutex(const SmallMutex &) = delete;
    SmallMutex &operator=(const SmallMutex &) = delete;

    [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) { return take_free(); }
    void lock() ACQUIRE() { take(); }
    void unlock() RELEASE() { leave(); }
    // These are lock() and unlock() for a mutex that one function takes and another releases: the handlers of
    // a fork. The analysis does not follow them.
    void take() {
        if (!take_free()) [[unlikely]] {
            wait();
        }
    }
    void leave() {
        if (state_.exchange(free, std::memory_order_release) == awaited) [[unlikely]] {
            call_futex(FUTEX_WAKE_PRIVATE, 1);
        }
    }
    // Tells the analysis that the mutex is held, where it cannot see that. A debug build checks it.
    void assert_held() const ASSERT_CAPABILITY(this) {
        assert(state_.load(std::memory_order_relaxed) != free);
    }

private:
    static constexpr int free = 0;
    static constexpr int taken = 1;
    static constexpr int awaited = 2;  // taken, and there may be a thread that sleeps

    bool take_free() {
        int expected = free;
        return state_.compare_exchange_strong(expected, taken, std::memory_order_acquire,
                                              std::memory_order_relaxed);
    }
    // The thread cannot know whether others still sleep, so it leaves the mutex as awaited. It sleeps at
    // once: std::atomic yields the processor some times first, which lets other processes of a busy machine
    // run for long, while a mutex that this thread has too stays taken.
    [[gnu::noinline]] void wait() {
        while (state_.exchange(awaited, std::memory_order_acquire) != free) {
            call_futex(FUTEX_WAIT_PRIVATE, awaited);
        }
    }
    // Another thread may have destroyed the mutex before a call that wakes, as it may for std::mutex. That
    // call then wakes a thread without a reason, or fails, and neither does harm.
    [[gnu::noinline]] void call_futex(int operation, int value) {
        const int error = errno;
        (void)syscall(SYS_futex, &state_, operation, value, nullptr);
        errno = error;
    }

    std::atomic<int> state_{free};
};

}  // namespace base
