// SPDX-License-Identifier: BSD-3-Clause
// persist/guard: touches memory that may vanish (unmapped, truncated file, full disk) without ending the
// process. A fault in the memory that a guarded section touches becomes `false`. Any other fault goes to the
// handler that was there before, also the fault of a signal handler that interrupts the section.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace persist {

// Installs the handler of SIGSEGV and SIGBUS, and puts it in front again when the program has set its own
// since. That costs two system calls, so it is called when memory is registered, and not when it is touched.
// The first guarded section calls it too. Any thread may call it.
void install_guard();

// Installs the handler unless that was done once. Relaxed is enough, because the flag only says whether to
// install; the handler finds its data by itself.
extern std::atomic<bool> guard_is_installed;
inline void ensure_guard() {
    if (!guard_is_installed.load(std::memory_order_relaxed)) [[unlikely]] {
        install_guard();
    }
}

// Instructions in assembly that touch memory which may vanish. To enter a guarded section takes longer than
// they do, so the handler knows where they are: a thread that faults from `begin` to `end` goes on at
// `faulted`. That is also so for a restartable sequence (rseq(2)), whose fault the kernel reports at the
// place where the sequence is left; that place is in the range too. An object lasts as long as the process.
class GuardedInstructions {
public:
    GuardedInstructions(const void *begin, const void *end, const void *faulted);
    GuardedInstructions(const GuardedInstructions &) = delete;
    GuardedInstructions &operator=(const GuardedInstructions &) = delete;

    // Lets a thread that has faulted in one of them go on. Returns false when it has not. It is for the
    // handler, whose third argument is `context`.
    [[nodiscard]] static bool leave(void *context);

private:
    const std::uintptr_t begin_;
    const std::uintptr_t end_;
    const std::uintptr_t faulted_;
    const GuardedInstructions *next_ = nullptr;
};

// Small copies are guarded without a section. They copy as large_copy() does. ThreadSanitizer does not see
// what they do, so they are not for it.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define PERSIST_SMALL_COPIES 1
#else
#define PERSIST_SMALL_COPIES 0
#endif
inline constexpr std::size_t most_of_a_small_copy = PERSIST_SMALL_COPIES != 0 ? 512 : 0;
// Returns 1, or 0 when a byte could not be copied.
extern "C" [[gnu::visibility("hidden")]] int persist_small_copy(void *to, const void *from, std::size_t size);
[[nodiscard]] bool large_copy(void *to, const void *from, std::size_t size);

// Copies `size` bytes between areas that do not overlap. Returns false when either side faulted; any part of
// `to` may then have been written. Eight bytes to an aligned place are one atomic store. Any thread may call
// it in which SIGSEGV and SIGBUS are not blocked (the kernel ends a process that faults with them blocked).
// It blocks only as memory does.
[[nodiscard, gnu::always_inline]] inline bool guarded_copy(void *to, const void *from, std::size_t size) {
#if PERSIST_SMALL_COPIES
    if (size <= most_of_a_small_copy) {
        ensure_guard();
        return persist_small_copy(to, from, size) != 0;
    }
#endif
    return large_copy(to, from, size);
}

// Copies the pieces to `to`, one after the other, as guarded_copy() does.
[[nodiscard]] bool guarded_gather(std::byte *to, std::span<const iovec> pieces);

// Stores eight bytes at once, with release order; `to` is a multiple of 8. Returns false when it faulted. The
// threads are those of guarded_copy().
[[nodiscard]] bool guarded_store(std::uint64_t *to, std::uint64_t value);

// Runs `run(argument)` guarded, which touches `size` bytes at `address`, and those of `others`. It may hold
// no lock and own nothing when it touches memory, because a fault leaves it without running destructors.
// Returns false when it faulted. The threads are those of guarded_copy().
[[nodiscard]] bool guarded_call(const void *address, std::size_t size, void (*run)(void *), void *argument,
                                std::span<const iovec> others = {});

// Does the same with a callable.
template <typename Work>
[[nodiscard]] bool guarded(const void *address, std::size_t size, Work work,
                           std::span<const iovec> others = {}) {
    return guarded_call(
        address, size, [](void *argument) { (*static_cast<Work *>(argument))(); }, &work, others);
}

// Replaces the eight bytes at `to`, a multiple of 8, by result_of(old bytes) at once, and stores the old
// ones. The processor does it, so that its other atomic operations on the same memory are atomic with it too.
// Acquire and release pair with the operations of other programs on the memory. Returns false when it
// faulted. The threads are those of guarded_copy().
template <typename ResultOf>
[[nodiscard]] bool guarded_exchange(std::uint64_t *to, std::uint64_t &original, ResultOf result_of) {
    return guarded(to, sizeof(*to), [&] {
        const std::atomic_ref<std::uint64_t> target{*to};
        // This first access is a write, so that memory that vanished faults here, and not inside
        // ThreadSanitizer, which holds a lock of its own in the exchange.
        std::uint64_t found = target.fetch_add(0, std::memory_order_relaxed);
        while (!target.compare_exchange_weak(found, result_of(found), std::memory_order_acq_rel,
                                             std::memory_order_relaxed)) {
        }
        original = found;
    });
}

// Returns whether a guarded section of this thread survives a fault. The kernel ends a process whose thread
// has blocked the signal.
[[nodiscard]] bool survives_faults();

}  // namespace persist
