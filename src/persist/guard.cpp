// SPDX-License-Identifier: BSD-3-Clause
// persist/guard: the fault handler, and the functions that run under it.
#include "persist/guard.hpp"
#include "base/parts.hpp"
#include "base/shared_value.hpp"
#include "base/user_memory.hpp"

#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <memory>

namespace persist {

namespace {

struct Range {
    std::uintptr_t begin;
    std::size_t size;

    // Returns whether the range has one of the bytes from `first` on.
    [[nodiscard]] bool touches(std::uintptr_t first, std::size_t bytes) const {
        return begin < first ? first - begin < size : begin - first < bytes && size != 0;
    }
    // Returns whether it has bytes where no program has memory.
    [[nodiscard]] bool is_beyond() const {
        return begin > base::end_of_user_memory || size > base::end_of_user_memory - begin;
    }
};

Range range_of(const void *address, std::size_t size) {
    return {reinterpret_cast<std::uintptr_t>(address), size};
}

// A guarded section: the memory that it touches, and where its thread continues after a fault there.
struct Section {
    Range to;
    std::span<const iovec> from;
    sigjmp_buf place;
};

// Null outside guarded sections. It is initial-exec, because the handler must not make the C library allocate
// this thread's copy. It is volatile, because the compiler would remove a store that only the handler reads.
__attribute__((tls_model("initial-exec"))) thread_local Section *volatile innermost = nullptr;

// A handler that ours replaced. It is never freed, because a fault may need it at any time.
struct Previous {
    struct sigaction action;
    Previous *older;        // the handler that was replaced before this one
    std::atomic_flag used;  // it has SA_RESETHAND and has been called
};
std::atomic<Previous *> newest_segv, newest_bus;

// The last call of a previous handler in this thread. That handler may have ended by a jump. The call is
// still under way when the same fault comes again on a deeper frame.
struct Chained {
    const siginfo_t *info;
    std::uintptr_t frame;
    const Previous *previous;
};
__attribute__((tls_model("initial-exec"))) thread_local Chained chained = {};

// Returns whether the interrupted instruction faults again when the handler returns. It does not for a signal
// that another process or thread sent, and for a broken page that has not been touched yet.
bool faults_again(int signal, const siginfo_t *info) {
    return info->si_code > 0 && !(signal == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

// Ends the process as it would have ended without this handler: the fault repeats, and a signal that was sent
// is sent again.
void die_by_default(int signal, siginfo_t *info) {
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
    if (!faults_again(signal, info)) {
        syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, info);
    }
}

}  // namespace

#if PERSIST_SMALL_COPIES
extern "C" {
[[gnu::visibility("hidden")]] extern const char persist_small_copy_done[];
[[gnu::visibility("hidden")]] extern const char persist_small_copy_faulted[];
}
asm(R"(
        .pushsection .text.persist_small_copy, "ax", @progbits
        .globl persist_small_copy, persist_small_copy_done, persist_small_copy_faulted
        .hidden persist_small_copy, persist_small_copy_done, persist_small_copy_faulted
        .type persist_small_copy, @function
persist_small_copy:
        .cfi_startproc
        cmp $8, %rdx
        jne 1f
        mov (%rsi), %rax
        mov %rax, (%rdi)
        jmp persist_small_copy_done
1:      cmp $16, %rdx
        jb 3f
2:      movups (%rsi), %xmm0
        movups %xmm0, (%rdi)
        add $16, %rsi
        add $16, %rdi
        sub $16, %rdx
        cmp $16, %rdx
        jae 2b
3:      mov %rdx, %rcx
        rep movsb
persist_small_copy_done:
        mov $1, %eax
        ret
persist_small_copy_faulted:
        xor %eax, %eax
        ret
        .cfi_endproc
        .size persist_small_copy, . - persist_small_copy
        .popsection
)");
#endif

namespace {

std::atomic<const GuardedInstructions *> newest_instructions;

#if PERSIST_SMALL_COPIES
const GuardedInstructions small_copies{reinterpret_cast<const void *>(&persist_small_copy),
                                       persist_small_copy_done, persist_small_copy_faulted};
#endif

// Returns the signals that were blocked where the fault happened. The kernel fills 64 bits of the larger
// sigset_t.
sigset_t blocked_at_fault(const void *context) {
    sigset_t blocked;
    sigemptyset(&blocked);
    std::memcpy(&blocked, &static_cast<const ucontext_t *>(context)->uc_sigmask, (_NSIG - 1) / 8);
    return blocked;
}

// Calls the handler that ours replaced, with the same arguments and the same blocked signals (the kernel
// restores the mask when ours returns). A handler that was installed over ours, and calls ours, so reaches
// the one before it.
void chain(int signal, siginfo_t *info, void *context) {
    const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const bool handed_on = info == chained.info && frame < chained.frame;
    // Acquire makes the contents of *previous visible.
    Previous *const previous =
        handed_on ? chained.previous->older
                  : (signal == SIGSEGV ? newest_segv : newest_bus).load(std::memory_order_acquire);
    if (previous == nullptr) {
        die_by_default(signal, info);
        return;
    }
    chained = {info, frame, previous};
    const struct sigaction &action = previous->action;
    if (action.sa_handler == SIG_IGN && !faults_again(signal, info)) {
        return;
    }
    // The kernel ends a process that ignores a fault.
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN ||
        ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0 && previous->used.test_and_set())) {
        die_by_default(signal, info);
        return;
    }
    sigset_t blocked = blocked_at_fault(context);
    sigorset(&blocked, &blocked, &action.sa_mask);
    if ((action.sa_flags & SA_NODEFER) == 0) {
        sigaddset(&blocked, signal);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    if ((action.sa_flags & SA_SIGINFO) != 0) {
        action.sa_sigaction(signal, info, context);
    } else {
        action.sa_handler(signal);
    }
}

// Returns whether the fault is in the memory that a section touches. The kernel names a broken page by its
// beginning.
bool is_of(const Section &section, int signal, const siginfo_t *info) {
    // For an address that no program can have, the processor reports a general-protection fault, which names
    // no address.
    if (signal == SIGSEGV && info->si_code == SI_KERNEL) {
        return section.to.is_beyond() || std::ranges::any_of(section.from, [](const iovec &piece) {
                   return range_of(piece.iov_base, piece.iov_len).is_beyond();
               });
    }
    const bool broken = signal == SIGBUS && info->si_code == BUS_MCEERR_AR;
    const std::size_t bytes = broken ? std::size_t{1} << info->si_addr_lsb : 1;
    const auto first = reinterpret_cast<std::uintptr_t>(info->si_addr);
    return faults_again(signal, info) &&
           (section.to.touches(first, bytes) ||
            std::ranges::any_of(section.from, [first, bytes](const iovec &piece) {
                return range_of(piece.iov_base, piece.iov_len).touches(first, bytes);
            }));
}

// A fault that belongs to no section goes to the handler before ours, also when it interrupts a section: a
// signal handler of the program may fault on purpose, and has a handler for that.
void on_fault(int signal, siginfo_t *info, void *context) {
    if (faults_again(signal, info) && GuardedInstructions::leave(context)) {
        return;
    }
    Section *const section = innermost;
    if (section != nullptr && is_of(*section, signal, info)) {
        // This has an effect only where a sanitizer has blocked signals around its call of this handler.
        const sigset_t blocked = blocked_at_fault(context);
        pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
        siglongjmp(section->place, 1);
    }
    chain(signal, info, context);
}

bool keeps(const Previous *previous, const struct sigaction &action) {
    return previous != nullptr && previous->action.sa_sigaction == action.sa_sigaction &&
           previous->action.sa_flags == action.sa_flags;
}

// Puts our handler in front of the present one. It takes no lock, because a fork could leave that held. Two
// threads at once do the same work twice, which does no harm.
void install(int signal, std::atomic<Previous *> &newest) {
    struct sigaction current;
    sigaction(signal, nullptr, &current);
    if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_fault) {
        return;
    }
    // It is published first, because a fault in another thread must find it as soon as our handler is
    // installed. When another thread has published meanwhile, that is looked at.
    Previous *newer = newest.load(std::memory_order_acquire);
    while (!keeps(newer, current)) {
        auto previous = std::make_unique<Previous>(current, newer);
        if (newest.compare_exchange_strong(newer, previous.get(), std::memory_order_acq_rel)) {
            (void)previous.release();
            break;
        }
    }
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    sigemptyset(&action.sa_mask);
    // With SA_NODEFER a fault leaves sigsetjmp's mask unchanged, so that a section costs no system call. The
    // other flags are those of the previous handler, which may need an alternate stack.
    action.sa_flags = SA_SIGINFO | SA_NODEFER | (current.sa_flags & (SA_RESTART | SA_ONSTACK));
    sigaction(signal, &action, nullptr);
}

// Runs one guarded section. It is a function of its own so that `outer` is not changed after sigsetjmp, and
// keeps its value after a jump. The signal fences keep the compiler from moving the work out of the section;
// no other thread is concerned.
template <typename Work>
[[gnu::noinline]] bool attempt(Range to, std::span<const iovec> from, Work work) {
    ensure_guard();
    Section section;
    section.to = to;
    section.from = from;
    Section *const outer = innermost;
    if (sigsetjmp(section.place, 0) != 0) {
        innermost = outer;
        return false;
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    innermost = &section;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    work();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    innermost = outer;
    return true;
}

// Release makes the bytes that were placed before visible to a program that polls these bytes.
void store(std::uint64_t *to, std::uint64_t value) {
    const std::atomic_ref<std::uint64_t> target{*to};
#ifdef __SANITIZE_THREAD__
    // ThreadSanitizer makes a release store under a lock of its own, which a fault would leave locked. This
    // access faults before that.
    target.fetch_add(0, std::memory_order_relaxed);
#endif
    target.store(value, std::memory_order_release);
}

bool aligned(const void *address) {
    return reinterpret_cast<std::uintptr_t>(address) % 8 == 0;
}

void copy(void *to, const void *from, std::size_t size) {
    if (size == 8 && aligned(to)) {
        std::uint64_t value = 0;
        if (aligned(from)) {
            // Acquire pairs with the program's own store of these bytes.
            value = __atomic_load_n(static_cast<const std::uint64_t *>(from), __ATOMIC_ACQUIRE);
        } else {
            std::memcpy(&value, from, sizeof(value));
        }
        store(static_cast<std::uint64_t *>(to), value);
    } else if (size != 0) {
        std::memcpy(to, from, size);
    }
}

[[gnu::noinline]] bool gather_many(std::byte *to, std::span<const iovec> pieces) {
    const std::size_t size = base::size_of(pieces);
    if (size == 0) {
        return true;
    }
    if (size <= most_of_a_small_copy) {
        return std::ranges::all_of(pieces, [&to](const iovec &piece) {
            std::byte *const place = to;
            to += piece.iov_len;
            return guarded_copy(place, piece.iov_base, piece.iov_len);
        });
    }
    return attempt(range_of(to, size), pieces, [to, pieces] {
        std::byte *next = to;
        for (const iovec &piece : pieces) {
            copy(next, piece.iov_base, piece.iov_len);
            next += piece.iov_len;
        }
    });
}

}  // namespace

GuardedInstructions::GuardedInstructions(const void *begin, const void *end, const void *faulted)
    : begin_{reinterpret_cast<std::uintptr_t>(begin)},
      end_{reinterpret_cast<std::uintptr_t>(end)},
      faulted_{reinterpret_cast<std::uintptr_t>(faulted)},
      next_{newest_instructions.load(std::memory_order_relaxed)} {
    while (!newest_instructions.compare_exchange_weak(next_, this, std::memory_order_release)) {
    }
}

bool GuardedInstructions::leave([[maybe_unused]] void *context) {
#ifdef __x86_64__
    auto &next = static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP];
    for (const auto *one = newest_instructions.load(std::memory_order_acquire); one != nullptr;
         one = one->next_) {
        if (static_cast<std::uintptr_t>(next) - one->begin_ < one->end_ - one->begin_) {
            next = static_cast<greg_t>(one->faulted_);
            return true;
        }
    }
#endif
    return false;
}

std::atomic<bool> guard_is_installed{false};

void install_guard() {
    install(SIGSEGV, newest_segv);
    install(SIGBUS, newest_bus);
    base::set_shared(guard_is_installed, true);
}

bool large_copy(void *to, const void *from, std::size_t size) {
    const iovec piece = base::part_of(from, size);
    return attempt(range_of(to, size), {&piece, 1}, [to, from, size] { copy(to, from, size); });
}

bool guarded_gather(std::byte *to, std::span<const iovec> pieces) {
    return pieces.size() == 1 ? guarded_copy(to, pieces[0].iov_base, pieces[0].iov_len)
                              : gather_many(to, pieces);
}

bool guarded_store(std::uint64_t *to, std::uint64_t value) {
    assert(aligned(to));
    return attempt(range_of(to, sizeof(*to)), {}, [to, value] { store(to, value); });
}

bool guarded_call(const void *address, std::size_t size, void (*run)(void *), void *argument,
                  std::span<const iovec> others) {
    return attempt(range_of(address, size), others, [run, argument] { run(argument); });
}

bool survives_faults() {
    sigset_t blocked;
    return pthread_sigmask(SIG_BLOCK, nullptr, &blocked) == 0 && sigismember(&blocked, SIGBUS) == 0 &&
           sigismember(&blocked, SIGSEGV) == 0;
}

}  // namespace persist
