// SPDX-License-Identifier: BSD-3-Clause
// base/lock: holds a mutex until a scope ends, as all code of the tree does.
#pragma once

#include "base/thread_safety.hpp"

namespace base {

// Says that the caller holds the mutex.
struct Adopt {};
inline constexpr Adopt adopt;

// Holds a mutex of any kind until its scope ends. Constructor and destructor are inline also where the
// compiler expects that a place is rarely reached. A call there would keep held_ in memory, and the usual
// path would pay for that.
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

    // Releases the mutex before the end of the scope.
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

// Releases the mutex, and takes it again when its scope ends.
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
