// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_heirs: child processes that have what this one had when it forked.
#pragma once

#include <sys/types.h>

#include <span>

#include "../forks.h"
#include "rsocket_pair.hpp"

namespace model {

inline constexpr bool may_fork = !CHILDREN_HANG_IN_MALLOC && !CHILDREN_MAKE_NO_THREADS;

// fork(2). The child ends by itself, sooner or later.
[[nodiscard]] pid_t make_child();
// Waits for it. It may have been killed.
[[nodiscard]] bool ended_well(pid_t child);
// Ends a child in one of several ways.
[[noreturn]] void leave(Dice &dice);
// In a program that was begun by exec: the exit code. The arguments are those behind the first.
[[nodiscard]] int be_heir(std::span<char *const> arguments);

}  // namespace model
