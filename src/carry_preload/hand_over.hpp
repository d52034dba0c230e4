// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/hand_over: sockets that are used past this library from now on: by another program, or by a
// part of libc that this library cannot stand in front of. They stay in TCP.
#pragma once

#include <sys/socket.h>

#include "carry/sockets.hpp"

namespace carry_preload {

// Returns whether the kernel's socket has all that is to be read. When it does not, a line in the log says
// so.
bool hand_over(carry::Socket &socket, int fd);
// The message may pass descriptors (SCM_RIGHTS).
void hand_over_rights(const msghdr &message);
[[nodiscard]] bool is_pipe(int fd);
// The process executes another program, which gets the descriptors that are not closed then.
void hand_over_to_program();

}  // namespace carry_preload
