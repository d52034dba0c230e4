// SPDX-License-Identifier: BSD-3-Clause
// carry/section: the lock of an object that lies in memory of several processes.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/interpose.hpp"

namespace carry {

// Forked processes share it. When a process is killed that has it, the next one gets it: each change of what
// it guards becomes visible by one store.
class SharedLock {
public:
    void begin() {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&mutex_, &attributes);
        pthread_mutexattr_destroy(&attributes);
    }
    void lock() { (void)is_taken(pthread_mutex_lock(&mutex_)); }
    [[nodiscard]] bool try_lock() { return is_taken(pthread_mutex_trylock(&mutex_)); }
    void unlock() { pthread_mutex_unlock(&mutex_); }

private:
    bool is_taken(int result) {
        if (result == EOWNERDEAD) {
            pthread_mutex_consistent(&mutex_);
        }
        return result == 0 || result == EOWNERDEAD;
    }
    pthread_mutex_t mutex_;
};

// The kernel's set of signals, with those of the C library (cancellation), which a sigset_t does not take.
using SignalMask = unsigned long;

// Meanwhile this thread runs no handler but those of faults, and is not cancelled: a handler may use the
// socket that it has interrupted, as it may with the kernel's.
class HeldHandlers {
public:
    HeldHandlers() {
        constexpr auto bit = [](int signal) { return SignalMask{1} << (signal - 1); };
        constexpr SignalMask held = ~(bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) |
                                      bit(SIGSYS) | bit(SIGABRT));
        LIBC(syscall)(SYS_rt_sigprocmask, SIG_BLOCK, &held, &before_, sizeof(held));
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels_);
    }
    // Not noexcept: a thread that is cancelled at any moment (pthread_setcanceltype(3)) ends here.
    ~HeldHandlers() noexcept(false) {
        const int error = errno;
        LIBC(syscall)(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof(before_));
        pthread_setcancelstate(cancels_, nullptr);
        errno = error;
    }
    HeldHandlers(const HeldHandlers &) = delete;
    HeldHandlers &operator=(const HeldHandlers &) = delete;

private:
    SignalMask before_ = 0;
    int cancels_ = PTHREAD_CANCEL_ENABLE;  // close(2) and its like would end the thread with a lock
};

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
