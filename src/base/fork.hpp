// SPDX-License-Identifier: BSD-3-Clause
// base/fork: a forked child must not use the objects that it inherits. Their sockets are shared with the
// parent, and their locks may be held for ever by threads that the child does not have.
#pragma once

#include <pthread.h>

#include <atomic>
#include <new>
#include <utility>
#include <vector>

#include "base/mutex.hpp"

namespace base {

// The number of forks between the first process that used the library and this one.
extern std::atomic<unsigned> forks;
[[nodiscard]] inline unsigned fork_generation() {
    return forks.load(std::memory_order_relaxed);
}

// Returns whether this process is a child of vfork(2), or another one for which the handlers of fork(2) did
// not run. Its memory may then be its parent's own; its descriptors are not. Makes a system call.
[[nodiscard]] bool is_in_parents_memory();

// Lets the process hold the mutex while it forks. So the child finds the guarded data complete, and no thread
// changes it. The child calls `renew` before it releases the mutex.
//
// Each mutex has one such object, at namespace scope. fork(2) takes the mutexes in the reverse order of the
// construction of these objects. A mutex with which no other lock is taken is taken last, because a thread
// that holds another mutex may wait for a thread that wants this one. Its object is
// [[gnu::init_priority(base::innermost)]].
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
    // Returns whether a parent process made the object. Takes no lock.
    [[nodiscard]] bool inherited() const { return made_in_ != fork_generation(); }

protected:
    Inheritable() = default;
    ~Inheritable() = default;

private:
    const unsigned made_in_ = fork_generation();
};

// Is for a child process. Releases the owner's object, which belongs to the parent, and never destroys it.
// The object stays reachable for a leak checker. Any number of threads may call it.
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
