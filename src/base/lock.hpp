// SPDX-License-Identifier: BSD-3-Clause
// base/lock: how every mutex of the tree is held: until a scope ends.
#pragma once

#include "base/thread_safety.hpp"

namespace base {

// Says that the caller holds the mutex.
struct Adopt {};
inline constexpr Adopt adopt;

// Holds a mutex of any kind until its scope ends. Its begin and end are inline also where a compiler thinks
// that a place is rarely reached: a call there would keep held_ in memory, which the usual way then pays for.
template <typename Held>
class SCOPED_CAPABILITY Lock {
public:
    [[nodiscard, gnu::always_inline]] explicit Lock(Held &mutex) ACQUIRE(mutex) : mutex_{mutex} {
        mutex_.lock();
    }
    [[nodiscard]] Lock(Held &mutex, Adopt) REQUIRES(mutex) : mutex_{mutex} {}
    [[gnu::always_inline]] ~Lock() RELEASE() {
        if (held_) {
            mutex_.unlock();
        }
    }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

    // Before the end of the scope.
    void unlock() RELEASE() RPMA_THREAD_SAFETY(no_thread_safety_analysis) {
        held_ = false;
        mutex_.unlock();
    }
    void lock() ACQUIRE() RPMA_THREAD_SAFETY(no_thread_safety_analysis) {
        mutex_.lock();
        held_ = true;
    }

private:
    Held &mutex_;
    bool held_ = true;
};

// Does not hold the mutex until its scope ends; then it is held again.
template <typename Held>
class SCOPED_CAPABILITY Unlock {
public:
    [[nodiscard]] explicit Unlock(Held &mutex) RELEASE(mutex) : mutex_{mutex} { mutex_.unlock(); }
    ~Unlock() RELEASE() { mutex_.lock(); }
    Unlock(const Unlock &) = delete;
    Unlock &operator=(const Unlock &) = delete;

private:
    Held &mutex_;
};

}  // namespace base
