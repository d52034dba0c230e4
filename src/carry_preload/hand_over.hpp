// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/hand_over: sockets that are used past this library from now on: by another program, or by a
// part of libc that this library cannot stand in front of. They stay in TCP.
#pragma once

#include <sys/socket.h>

#include "carry/sockets.hpp"

namespace carry_preload {

// Somebody reads the socket past this library. Where bytes are in a ring and were not read, the connection is
// reset.
void hand_over(carry::Socket &socket, int fd);
// The socket stays in TCP, and this library reads what is in a ring. Returns whether nothing is there.
bool keep_in_tcp(carry::Socket &socket, int fd);
// The socket gets this number, in a program or for libc's streams. Only standard input is surely read there.
void hand_over_as(carry::Socket &socket, int fd, int number);
// The message may pass descriptors (SCM_RIGHTS).
void hand_over_rights(const msghdr &message);
// The kernel alone has from here on each connection of which the process has read all, and each that it
// makes. The process is about to filter its system calls (seccomp(2)), and its program does not need those of
// this library; or a thread gets descriptors of its own (unshare(2)), which this library does not know.
void keep_all_in_tcp();
[[nodiscard]] bool keeps_all_in_tcp();
// The process leaves its connections in TCP. What is in a ring, and was not read, is for the other processes
// that have the connection; where there is none, this process reads it.
void hand_over_to_others();
[[nodiscard]] bool is_pipe(int fd);
// Another program is executed, which gets the descriptors that are not closed then. keeps: this process has
// them too.
void hand_over_to_program(bool keeps);

}  // namespace carry_preload
