// SPDX-License-Identifier: BSD-3-Clause
// carry/section: the lock of an object that lies in memory of several processes.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <utility>

#include "base/mutex.hpp"
#include "base/small_mutex.hpp"
#include "carry/handlers.hpp"

namespace carry {

// Forked processes share it. When a process is killed that has it, the next one gets it, and may find what it
// guards half changed.
class SharedLock {
public:
    void begin() {
        pthread_mutex_init(&mutex_, &attributes());
        lost_owner_ = false;
    }
    void lock() { (void)is_taken(pthread_mutex_lock(&mutex_)); }
    [[nodiscard]] bool try_lock() { return is_taken(pthread_mutex_trylock(&mutex_)); }
    void unlock() { pthread_mutex_unlock(&mutex_); }
    // Returns true once after that. The caller has the lock.
    [[nodiscard]] bool has_lost_owner() { return std::exchange(lost_owner_, false); }

private:
    [[nodiscard]] static const pthread_mutexattr_t &attributes() {
        static const pthread_mutexattr_t robust = [] {
            pthread_mutexattr_t made;
            pthread_mutexattr_init(&made);
            pthread_mutexattr_setpshared(&made, PTHREAD_PROCESS_SHARED);
            pthread_mutexattr_setrobust(&made, PTHREAD_MUTEX_ROBUST);
            return made;
        }();
        return robust;
    }
    bool is_taken(int result) {
        if (result == EOWNERDEAD) {
            pthread_mutex_consistent(&mutex_);
            lost_owner_ = true;
        }
        return result == 0 || result == EOWNERDEAD;
    }
    pthread_mutex_t mutex_;
    bool lost_owner_;
};

// Holds a mutex of this process, and keeps handlers from running, which may use what it guards.
template <typename Mutex, typename Handlers = HeldHandlers>
class SCOPED_CAPABILITY Held {
public:
    explicit Held(Mutex &mutex) ACQUIRE(mutex) : mutex_{mutex} { mutex_.lock(); }
    ~Held() noexcept(false) RELEASE() { mutex_.unlock(); }
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;

private:
    const Handlers held_;
    Mutex &mutex_;
};
template <typename Mutex>
Held(Mutex &) -> Held<Mutex>;
// The same around calls that are no cancellation points.
using HeldShortly = Held<base::SmallMutex, HeldSignals>;

// Holds a lock, and keeps handlers from running. A section does not sleep.
class Section {
public:
    explicit Section(SharedLock &lock) : lock_{lock} { lock_.lock(); }
    ~Section() noexcept(false) { lock_.unlock(); }
    Section(const Section &) = delete;
    Section &operator=(const Section &) = delete;

private:
    const HeldHandlers held_;
    SharedLock &lock_;
};

// The same, if no other thread has the lock.
class TrySection {
public:
    explicit TrySection(SharedLock &lock) : lock_{lock}, has_{lock_.try_lock()} {}
    ~TrySection() noexcept(false) {
        if (has_) {
            lock_.unlock();
        }
    }
    TrySection(const TrySection &) = delete;
    TrySection &operator=(const TrySection &) = delete;
    explicit operator bool() const { return has_; }

private:
    const HeldHandlers held_;
    SharedLock &lock_;
    const bool has_;
};

}  // namespace carry
