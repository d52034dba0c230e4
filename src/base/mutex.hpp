// SPDX-License-Identifier: BSD-3-Clause
// base/mutex: the locks of the tree, which clang's thread safety analysis understands. SmallMutex,
// SharedMutex and Condition have headers of their own.
#pragma once

#include <pthread.h>

#include <cassert>
#include <cerrno>
#include <mutex>
#include <new>

#include "base/lock.hpp"
#include "base/thread_safety.hpp"

namespace base {

// The mutex of a table that the process keeps: it is never destroyed, because a thread may still be in a call
// when main() has returned.
class CAPABILITY("mutex") LastingMutex {
public:
    constexpr LastingMutex() = default;
    LastingMutex(const LastingMutex &) = delete;
    LastingMutex &operator=(const LastingMutex &) = delete;

    void lock() ACQUIRE() { mutex_.lock(); }
    [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
    void unlock() RELEASE() { mutex_.unlock(); }
    // For the analysis, where it cannot see who took the mutex. A debug build checks that a thread has it.
    void assert_held() const ASSERT_CAPABILITY(this) {
        assert(pthread_mutex_trylock(mutex_.native_handle()) == EBUSY);
    }
    // As lock() and unlock(), for a mutex that one function takes and another leaves: the handlers of a fork,
    // or what a program calls. The analysis does not follow these.
    void take() { mutex_.lock(); }
    void leave() { mutex_.unlock(); }
    // In a child of fork(2), where the thread that held it does not exist.
    void renew_after_fork() { new (&mutex_) std::mutex; }

protected:
    friend class Condition;
    mutable std::mutex mutex_;
};

// The mutex of an object that ends. A std::mutex begins and ends without a call, and a race detector takes
// the next one at its address for the same: it then knows an order of locks that there never was.
class Mutex : public LastingMutex {
public:
    Mutex() { static_cast<void>(pthread_mutex_init(mutex_.native_handle(), nullptr)); }
    // The owner's last reference may have been given up without this mutex, in a way that a race detector
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

// For what is changed with two locks and read with either: the members are guarded by a Role, and functions
// without a body, which require the locks, assert it.
class CAPABILITY("role") Role {};

}  // namespace base
