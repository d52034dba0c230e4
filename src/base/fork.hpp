// SPDX-License-Identifier: BSD-3-Clause
// base/fork: a forked child must not use the objects that it inherits. Their sockets are shared with the
// parent, and their locks may be held for ever by threads that the child does not have.
#pragma once

#include <atomic>
#include <cerrno>
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
// not run. Its memory may then be its parent's own; its descriptors are not. Makes a system call, unless the
// library counts the processes that share its memory, and there is none.
[[nodiscard]] bool is_in_parents_memory();
// The thread has left the process's table of descriptors for a copy of its own (unshare(2) with CLONE_FILES).
// From here on is_in_parents_memory() is true for it.
void note_own_descriptors();

// The library stands in front of vfork(2) and clone(2), and counts in memory_sharers the children that have
// this memory. Before the call it is 1: nobody counts.
void count_memory_sharers();
extern std::atomic<unsigned> memory_sharers asm("rpma_memory_sharers");  // for a function in assembly

// What fork(2) does around the making of a process.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

// Makes a call that copies the process as fork(2) does, but without its handlers: a system call by its
// number. The hooks of this library run around it. Returns what the call returns.
template <typename Call>
long forking(Call call) {
    before_fork();
    const long made = call();
    const int error = errno;
    made == 0 ? after_fork_in_child() : after_fork_in_parent();
    errno = error;
    return made;
}

// The place of a hook among those of the library, from the first that a fork calls to the last. A level is a
// room, and the upper rooms come first, because a thread that holds a mutex takes others of lower rooms only.
// No thread holds two mutexes of one level.
enum class ForkLevel {
    EndedThreads,  // waits for threads, and so comes before any mutex is taken
    CarryLinks,    // and its counts
    Carry,
    Rsocket,
    Stream,
    Verbs,
    SoftCm,
    SoftQueues,
    SoftDevice,
    SoftMemory,
    SoftProgress,
    SoftGround,
    SoftLink,
    Persist,
    Base
};

struct ForkCalls {
    void (*before)() = nullptr;
    void (*after_in_parent)() = nullptr;
    void (*after_in_child)() = nullptr;
};

// fork(2) calls the functions of a hook in the thread that forks: `before` from the upper levels down, the
// others from the lower levels up. The child's fork_generation() is counted before its first hook. The order
// of construction does not matter. A hook lasts as long as its library; dlclose(3) ends both.
class ForkHook {
public:
    ForkHook(ForkLevel level, const ForkCalls &calls);
    ForkHook(const ForkHook &) = delete;
    ForkHook &operator=(const ForkHook &) = delete;

private:
    friend struct ForkHooks;
    const ForkLevel level_;
    const ForkCalls calls_;
    mutable const ForkHook *upper_ = nullptr;
    mutable const ForkHook *lower_ = nullptr;
};

// Lets the process hold the mutex while it forks. So the child finds the guarded data complete, and no thread
// changes it. The child calls `renew` before it releases the mutex.
template <auto &mutex, void (*renew)() = nullptr>
struct HeldWhileForking : ForkHook {
    explicit HeldWhileForking(ForkLevel level)
        : ForkHook{level,
                   {.before = [] { mutex.take(); },
                    .after_in_parent = [] { mutex.leave(); },
                    .after_in_child =
                        [] {
                            if constexpr (renew != nullptr) {
                                renew();
                            }
                            mutex.leave();
                        }}} {}
};

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
