// SPDX-License-Identifier: BSD-3-Clause
// base/fork: what a forked child inherits is its parent's: the sockets are shared, and its locks may be held
// for ever by threads that the child does not have.
#pragma once

#include <pthread.h>

#include <atomic>
#include <new>
#include <utility>
#include <vector>

#include "base/mutex.hpp"

namespace base {

// Number of forks between the first process that used the library and this one.
extern std::atomic<unsigned> forks;
[[nodiscard]] inline unsigned fork_generation() {
    return forks.load(std::memory_order_relaxed);
}

// Whether this is a child of vfork(2), or another for which the handlers of fork(2) did not run: what it has
// in memory may be its parent's own. Its descriptors are its own. A system call.
[[nodiscard]] bool is_in_parents_memory();

// Lets the process hold the mutex while it forks, so that the child finds what the mutex guards whole, and
// nobody in it. The child calls `renew` before it lets go of the mutex.
//
// Each mutex has one such object, at namespace scope. fork(2) takes the mutexes in the reverse order of the
// construction of these objects. A mutex with which nothing else is taken is taken last: a thread that holds
// another one may wait for a thread that wants it. Its object is [[gnu::init_priority(base::innermost)]].
template <auto &mutex, void (*renew)() = nullptr>
struct HeldWhileForking {
    HeldWhileForking() {
        static_cast<void>(pthread_atfork([] { mutex.take(); }, [] { mutex.leave(); },
                                         [] {
                                             if constexpr (renew != nullptr) {
                                                 renew();
                                             }
                                             mutex.leave();
                                         }));
    }
};
inline constexpr int innermost = 1000;

// An object that refuses its work to a child of the process that made it.
class Inheritable {
public:
    // Made before a fork, and so the parent's. Takes no lock.
    [[nodiscard]] bool inherited() const { return made_in_ != fork_generation(); }

protected:
    Inheritable() = default;
    ~Inheritable() = default;

private:
    const unsigned made_in_ = fork_generation();
};

// In a child process: what the owner has is the parent's, and is never destroyed here. It stays where a leak
// checker finds it. Any number of threads.
template <typename Owner>
void leave_to_parent(Owner owner) {
    static auto &mutex = *new LastingMutex;
    static auto &left GUARDED_BY(mutex) = *new std::vector<Owner>;
    const Lock lock{mutex};
    try {
        left.reserve(left.size() + 1);
    } catch (const std::bad_alloc &) {
        static_cast<void>(owner.release());
        return;
    }
    left.push_back(std::move(owner));
}

}  // namespace base
