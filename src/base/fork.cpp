// SPDX-License-Identifier: BSD-3-Clause
#include "base/fork.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <optional>

#include "base/cancelling.hpp"

namespace base {

constinit std::atomic<unsigned> forks{0};
constinit std::atomic<unsigned> memory_sharers{1};

namespace {

std::atomic<pid_t> process{getpid()};

// Is true in the process that has written it, and false in each copy of that: the kernel empties the page.
using OwnPage = std::atomic<bool>;
constinit std::atomic<OwnPage *> own_page{nullptr};

[[gnu::tls_model("initial-exec")]] constinit thread_local bool descriptors_are_own = false;

}  // namespace

// The hooks of this library, in the order of their levels. The mutex is held during a fork: a library may be
// loaded, and add its hooks, while another thread forks.
struct ForkHooks {
    LastingMutex mutex;
    const ForkHook *top GUARDED_BY(mutex) = nullptr;
    const ForkHook *bottom GUARDED_BY(mutex) = nullptr;
    std::optional<Cancelling> disabled GUARDED_BY(mutex);  // while hooks hold locks

    void add(const ForkHook &hook) REQUIRES(mutex) {
        const ForkHook *below = top;
        while (below != nullptr && below->level_ <= hook.level_) {
            below = below->lower_;
        }
        hook.lower_ = below;
        hook.upper_ = below != nullptr ? below->upper_ : bottom;
        (hook.upper_ != nullptr ? hook.upper_->lower_ : top) = &hook;
        (below != nullptr ? below->upper_ : bottom) = &hook;
    }
    void before() {
        mutex.take();
        mutex.assert_held();
        disabled.emplace(PTHREAD_CANCEL_DISABLE);
        for (const ForkHook *hook = top; hook != nullptr; hook = hook->lower_) {
            if (hook->calls_.before != nullptr) {
                hook->calls_.before();
            }
        }
    }
    void after(void (*ForkCalls::*call)()) {
        mutex.assert_held();
        for (const ForkHook *hook = bottom; hook != nullptr; hook = hook->upper_) {
            if (hook->calls_.*call != nullptr) {
                (hook->calls_.*call)();
            }
        }
        disabled.reset();
        mutex.leave();
    }
};

namespace {

constinit ForkHooks hooks;

// The tree calls it only here. The call belongs to the library that this is linked into, as the hooks do.
[[maybe_unused]] const int calls_hooks =
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

}  // namespace

void before_fork() {
    hooks.before();
}

void after_fork_in_parent() {
    hooks.after(&ForkCalls::after_in_parent);
}

void after_fork_in_child() {
    forks.fetch_add(1, std::memory_order_relaxed);
    process.store(getpid(), std::memory_order_relaxed);
    descriptors_are_own = false;  // the process has no other thread
    if (OwnPage *const page = own_page.load(std::memory_order_relaxed); page != nullptr) {
        page->store(true, std::memory_order_relaxed);
    }
    hooks.after(&ForkCalls::after_in_child);
}

ForkHook::ForkHook(ForkLevel level, const ForkCalls &calls) : level_{level}, calls_{calls} {
    const Lock lock{hooks.mutex};
    hooks.add(*this);
}

void count_memory_sharers() {
    constexpr std::size_t bytes = 4096;
    void *const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || madvise(page, bytes, MADV_WIPEONFORK) != 0) {
        return;  // the kernel is asked each time
    }
    static_cast<OwnPage *>(page)->store(true, std::memory_order_relaxed);
    own_page.store(static_cast<OwnPage *>(page), std::memory_order_relaxed);
    memory_sharers.fetch_sub(1, std::memory_order_relaxed);
}

bool is_in_parents_memory() {
    if (const OwnPage *const page = own_page.load(std::memory_order_relaxed);
        page != nullptr && page->load(std::memory_order_relaxed) &&
        memory_sharers.load(std::memory_order_relaxed) == 0) {
        return false;
    }
    return descriptors_are_own || process.load(std::memory_order_relaxed) != getpid();
}

void note_own_descriptors() {
    descriptors_are_own = true;
    memory_sharers.fetch_add(1, std::memory_order_relaxed);  // for good
}

}  // namespace base
