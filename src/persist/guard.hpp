// SPDX-License-Identifier: BSD-3-Clause
// persist/guard: touching memory that may vanish under us (unmapped, truncated file, full disk) without
// ending the process. A fault in the memory that a guarded section touches, while it does, becomes `false`;
// any other goes to the handler that was there before, also one of a signal handler that interrupts the
// section.
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>

namespace persist {

// Puts the handler of SIGSEGV and SIGBUS in place, or back in front when the program has set its own since
// (then two system calls tell, so: call it when memory is registered, not when it is touched). The first
// guarded section calls it too. Any thread.
void install_guard();

// Copies `size` bytes between areas that do not overlap; false when either side faulted, then any part of
// `to` may have been written. Eight bytes to an aligned place are one atomic store. Any thread in
// which SIGSEGV and SIGBUS are not blocked (the kernel ends a process that faults with them blocked). Blocks
// only as memory does.
[[nodiscard]] bool guarded_copy(void *to, const void *from, std::size_t size);

// Stores eight bytes at once, with release order; `to` is a multiple of 8. False when it faulted. Threads as
// above.
[[nodiscard]] bool guarded_store(std::uint64_t *to, std::uint64_t value);

// Runs `run(argument)` guarded, which touches `size` bytes at `address`: it may hold no lock and own nothing
// when it touches memory, because a fault leaves it without running destructors. False when it faulted.
// Threads as above.
[[nodiscard]] bool guarded_call(const void *address, std::size_t size, void (*run)(void *), void *argument);

// The same for a callable.
template <typename Work>
[[nodiscard]] bool guarded(const void *address, std::size_t size, Work work) {
    return guarded_call(address, size, [](void *argument) { (*static_cast<Work *>(argument))(); }, &work);
}

// Every signal but those that a faulty instruction raises: what a thread of ours blocks, so that the
// program's signals go to the program's threads while guarded sections still work.
[[nodiscard]] sigset_t signals_of_others();

}  // namespace persist
