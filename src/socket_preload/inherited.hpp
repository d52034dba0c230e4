// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/inherited: TCP sockets that this process has not made. It got them by exec, or by
// SCM_RIGHTS (unix(7)). They stay the kernel's until the program uses one, because it may only hand them on.
#pragma once

#include <sys/socket.h>

#include "socket_preload/descriptor_kinds.hpp"

namespace socket_preload {

// Notes in the table that the descriptor is of Kind::Inherited, if it is such a socket. When the program
// uses it, it becomes an rsocket with all its numbers. If another process has begun a stream there, the
// rsocket gives ECONNRESET, and a line in the log says so.
void inherit(int fd);

// Takes the descriptors that came with a message: their numbers are new.
void take_rights(const msghdr &message);

// Returns what a descriptor of Kind::Inherited becomes when the program uses it.
[[nodiscard]] Kind adopted(int fd);

}  // namespace socket_preload
