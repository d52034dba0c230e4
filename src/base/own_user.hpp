// SPDX-License-Identifier: BSD-3-Clause
// base/own_user: whether a user whose number the kernel tells is this process's own. A user namespace
// (user_namespaces(7)) need not have a number for each user of the machine. The kernel tells one number of
// all those who have none, and a process in the namespace may have that number too.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>

namespace base {

// Returns whether this is this process's effective user, and no other user can have that number here.
[[nodiscard]] bool is_own_user(uid_t user);

// Returns the number of this process's user namespace if other users can have the number of its user there.
[[nodiscard]] std::optional<ino_t> namespace_of_shared_number();

// Returns whether the process that a Unix socket is connected to, as SO_PEERCRED has told it, is one of this
// process's user. Where that user's number tells nothing, it has to run in the user namespace and in the
// namespace of processes of this one, so that each of the two can ask this of the other.
[[nodiscard]] bool is_own_peer(int socket, pid_t peer, uid_t user);

// Returns whether this process's user owns the open file, which has this status.
[[nodiscard]] bool is_own_file(int file, const struct stat &status);

}  // namespace base
