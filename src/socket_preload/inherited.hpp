// SPDX-License-Identifier: BSD-3-Clause
// socket_preload/inherited: TCP sockets that this process has not made. It got them by exec, or by SCM_RIGHTS
// (unix(7)). They stay the kernel's until the program uses one: it may only hand them on.
#pragma once

#include <sys/socket.h>

#include "socket_preload/descriptors.hpp"

namespace socket_preload {

// Says in the table that the descriptor is of Kind::Inherited, if it is such a socket. When the program uses
// it, it becomes an rsocket with all its numbers. If another process has begun a stream there, the rsocket
// gives ECONNRESET, and a line in the log says so.
void inherit(int fd);

// Takes the descriptors that came with a message: their numbers are new.
void take_rights(const msghdr &message);

// libc's stdin, stdout and stderr read and write by calls that cannot be interposed. When their number, 0 to
// 2, becomes a socket's, this puts streams in their place that use what the number is.
void begin_standard_stream(int number);

}  // namespace socket_preload
