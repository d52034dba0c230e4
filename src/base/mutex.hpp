// SPDX-License-Identifier: BSD-3-Clause
// base/mutex: the locks of the tree, which clang's thread safety analysis understands. SmallMutex,
// WatchedMutex, SharedMutex and Condition have headers of their own.
#pragma once

#include <pthread.h>

#include <cassert>
#include <cerrno>
#include <mutex>
#include <new>

#include "base/lock.hpp"
#include "base/thread_safety.hpp"

namespace base {

// The mutex of a table that lives as long as the process. It is never destroyed, because a thread may still
// be in a call when main() has returned.
class CAPABILITY("mutex") LastingMutex {
public:
    constexpr LastingMutex() = default;
    LastingMutex(const LastingMutex &) = delete;
    LastingMutex &operator=(const LastingMutex &) = delete;

    void lock() ACQUIRE() { mutex_.lock(); }
    [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
    void unlock() RELEASE() { mutex_.unlock(); }
    // Tells the analysis that the mutex is held, where it cannot see that. A debug build checks it.
    void assert_held() const ASSERT_CAPABILITY(this) {
        assert(pthread_mutex_trylock(mutex_.native_handle()) == EBUSY);
    }
    // These are lock() and unlock() for a mutex that one function takes and another releases: the handlers of
    // a fork, or two calls of the program. The analysis does not follow them.
    void take() { mutex_.lock(); }
    void leave() { mutex_.unlock(); }
    // Is for a child of fork(2), where the thread that held the mutex does not exist.
    void renew_after_fork() { new (&mutex_) std::mutex; }

protected:
    friend class Condition;
    mutable std::mutex mutex_;
};

// The mutex of an object that is destroyed. A std::mutex begins and ends without a call. So a race detector
// takes the next mutex at the same address for the same one, and reports an order of locks that never
// existed.
class Mutex : public LastingMutex {
public:
    Mutex() { static_cast<void>(pthread_mutex_init(mutex_.native_handle(), nullptr)); }
    // A thread may release the last reference to the owner without this mutex, in a way that a race detector
    // does not see (the count of a shared_ptr). Taking the mutex shows it that each unlock came before the
    // end.
    ~Mutex() {
        if (mutex_.try_lock()) {
            mutex_.unlock();
        }
        static_cast<void>(pthread_mutex_destroy(mutex_.native_handle()));
    }
    Mutex(const Mutex &) = delete;
    Mutex &operator=(const Mutex &) = delete;
};

// A Role guards members that are changed with two locks and read with either. Functions without a body, which
// require the locks, assert it.
class CAPABILITY("role") Role {};

}  // namespace base
