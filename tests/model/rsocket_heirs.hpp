// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_heirs: child processes inherit the pairs of this process when it forks.
#pragma once

#include <sys/types.h>

#include "../forks.h"
#include "rsocket_pair.hpp"

namespace model {

inline constexpr bool may_fork = !CHILDREN_HANG_IN_MALLOC && !CHILDREN_MAKE_NO_THREADS;

// Calls fork(2). The child ends by itself, sooner or later.
[[nodiscard]] pid_t make_child();
// Waits for the end of the child, and returns whether it ended well. A child that was killed also did.
[[nodiscard]] bool ended_well(pid_t child);
// Ends a child in one of several ways.
[[noreturn]] void leave(Dice &dice);
}  // namespace model
