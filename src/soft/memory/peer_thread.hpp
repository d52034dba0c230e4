// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/peer_thread: asks the kernel whether a thread of a peer on this host can still store where it
// was accessing memory. A thread that does not run is interrupted: it looks again before it stores
// (memory/restartable). A system call that copies has to be over, because no interruption ends it.
#pragma once

#include <sys/types.h>

#include "soft/memory/board.hpp"

namespace soft {

// Returns whether /proc is that of this process's PID namespace. In another one's, numbers mean other
// processes.
[[nodiscard]] bool proc_is_of_this_namespace();

// Returns whether this access of the peer, which it began before the call, is over, or stores nothing more.
// Returns false when the kernel does not tell: it tells of a process that this one may trace (ptrace(2)),
// and in the /proc of its own PID namespace.
[[nodiscard]] bool has_let_go(pid_t process, const Board::Access &access);

}  // namespace soft
