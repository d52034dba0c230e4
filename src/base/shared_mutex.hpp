// SPDX-License-Identifier: BSD-3-Clause
// base/shared_mutex: a mutex that many threads hold at once to read, or one thread alone to write.
#pragma once

#include <shared_mutex>

#include "base/thread_safety.hpp"

namespace base {

class CAPABILITY("shared mutex") SharedMutex {
public:
    void lock() ACQUIRE() { mutex_.lock(); }
    void unlock() RELEASE() { mutex_.unlock(); }
    void lock_shared() ACQUIRE_SHARED() { mutex_.lock_shared(); }
    void unlock_shared() RELEASE_SHARED() { mutex_.unlock_shared(); }

private:
    std::shared_mutex mutex_;
};

// Holds the mutex to read until its scope ends.
class SCOPED_CAPABILITY SharedLock {
public:
    [[nodiscard]] explicit SharedLock(SharedMutex &mutex) ACQUIRE_SHARED(mutex) : mutex_{mutex} {
        mutex_.lock_shared();
    }
    ~SharedLock() RELEASE() { mutex_.unlock_shared(); }
    SharedLock(const SharedLock &) = delete;
    SharedLock &operator=(const SharedLock &) = delete;

private:
    SharedMutex &mutex_;
};

}  // namespace base
