// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/processes: children, and threads that may be cancelled at any moment. These threads, and
// children that have this process's memory (vfork(2), clone(2)), are counted, so that a call of a program
// without them need not ask for them.
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "carry/sockets.hpp"

namespace {

[[maybe_unused]] const bool counts = [] {
    base::count_memory_sharers();
    base::asked_for_asynchronous_cancellation.fetch_sub(1, std::memory_order_relaxed);
    return true;
}();

}  // namespace

extern "C" [[gnu::used, gnu::visibility("hidden")]] pid_t carry_preload_failed(int error) {
    errno = -error;
    return -1;
}

namespace {

// Takes what a call that makes a child has returned, and returns it.
pid_t forked(long made) {
    const auto child = static_cast<pid_t>(made);
    carry::sockets.forked(child);
    return child;
}

}  // namespace

// libc calls the hooks of pthread_atfork(3) for fork(2), and not for the others.
NAMED(pid_t, fork) {
    return forked(LIBC(fork)());
}

NAMED(pid_t, _Fork) {
    return forked(base::forking([] { return LIBC(_Fork)(); }));
}

// The child uses the parent's stack, so the return address waits in a register that the kernel keeps. The
// child has ended, or executes another program, when the parent returns.
EXPORTED pid_t program_vfork() noexcept asm("vfork");
[[gnu::naked]] pid_t program_vfork() noexcept {
    asm("popq %rdi\n\t"
        ".cfi_adjust_cfa_offset -8\n\t"
        ".cfi_register %rip, %rdi\n\t"
        "lock incl rpma_memory_sharers(%rip)\n\t"
        "movl $58, %eax\n\t"  // SYS_vfork
        "syscall\n\t"
        "pushq %rdi\n\t"
        ".cfi_adjust_cfa_offset 8\n\t"
        ".cfi_rel_offset %rip, 0\n\t"
        "testl %eax, %eax\n\t"
        "jz 1f\n\t"
        "lock decl rpma_memory_sharers(%rip)\n\t"
        "testl %eax, %eax\n\t"
        "js 2f\n"
        "1:\tret\n"
        "2:\tmovl %eax, %edi\n\t"
        "jmp carry_preload_failed");
}
static_assert(sizeof(base::memory_sharers) == sizeof(int));

namespace {

struct Cloned {
    int (*function)(void *);
    void *argument;
};

// The child begins with a copy of the memory.
int begin_cloned(void *argument) {
    const Cloned cloned = *static_cast<const Cloned *>(argument);
    base::after_fork_in_child();
    return cloned.function(cloned.argument);
}

}  // namespace

// A child with this memory that does not end before the call returns is counted for good.
NAMED(int, clone, int (*function)(void *), void *stack, int flags, void *argument, ...) {
    va_list rest;
    va_start(rest, argument);
    auto *const parents_number = va_arg(rest, pid_t *);
    void *const storage = va_arg(rest, void *);
    auto *const childs_number = va_arg(rest, pid_t *);
    va_end(rest);
    if ((flags & CLONE_VM) == 0) {
        Cloned cloned{.function = function, .argument = argument};
        return forked(base::forking([&] {
            return LIBC(clone)(function != nullptr ? begin_cloned : nullptr, stack, flags, &cloned,
                               parents_number, storage, childs_number);
        }));
    }
    const bool shares = (flags & (CLONE_VM | CLONE_THREAD)) == CLONE_VM;
    base::memory_sharers += shares ? 1 : 0;
    const int made = LIBC(clone)(function, stack, flags, argument, parents_number, storage, childs_number);
    base::memory_sharers -= shares && (made < 0 || (flags & CLONE_VFORK) != 0) ? 1 : 0;
    return made;
}

NAMED(int, pthread_setcanceltype, int type, int *before) {
    if (type != PTHREAD_CANCEL_DEFERRED) {
        base::asked_for_asynchronous_cancellation.fetch_add(1, std::memory_order_relaxed);
    }
    return LIBC(pthread_setcanceltype)(type, before);
}
