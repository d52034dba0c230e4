// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_heirs: child processes that have what this one had when it forked.
#pragma once

#include <sys/types.h>

#include <span>

#include "rsocket_pair.hpp"

namespace model {

// GCC 12's AddressSanitizer does not hold the locks of its allocator while a process forks, as clang's does:
// a child waits for a lock that a thread of the parent had. GCC 12's ThreadSanitizer ends a child of threads
// that makes threads ("dup thread with used id"), and clang's does not.
#if !defined(__clang__) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
inline constexpr bool may_fork = false;
#else
inline constexpr bool may_fork = true;
#endif

// fork(2). The child ends by itself, sooner or later.
[[nodiscard]] pid_t make_child();
// Waits for it. It may have been killed.
[[nodiscard]] bool ended_well(pid_t child);
// Ends a child in one of several ways.
[[noreturn]] void leave(Dice &dice);
// In a program that was begun by exec: the exit code. The arguments are those behind the first.
[[nodiscard]] int be_heir(std::span<char *const> arguments);

}  // namespace model
