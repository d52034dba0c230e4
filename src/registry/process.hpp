// SPDX-License-Identifier: BSD-3-Clause
// registry/process: the users and the names of the registry's files, and whether the process of a file still
// has it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace registry {

struct FileName {
    uid_t user = 0;
    ino_t space = 0;  // pid_namespaces(7): of process numbers
    pid_t process = 0;
    ino_t inode = 0;  // of the file itself: a name is given once, so no process removes a later file by it

    [[nodiscard]] std::string text() const;
};

// Returns nothing for the name of another file.
[[nodiscard]] std::optional<FileName> parse_file_name(std::string_view text);

// The namespace of this process's number, as stat(2) of /proc/self/ns/pid has it; 0 where /proc is not there,
// or that of another namespace.
[[nodiscard]] ino_t own_space();

// Returns the effective users of the processes that this process sees, and its own and root in any case. Any
// user may have processes in the name of many, so of too many the lowest numbers are returned.
[[nodiscard]] std::vector<uid_t> users_with_processes();

// Locks the open file for as long as this process has it mapped: the mapping keeps the lock (F_OFD_SETLK in
// fcntl(2)) when the descriptor is closed. Each process sees the lock, whatever namespaces it is in, and only
// the file's owner and root can have one.
[[nodiscard]] base::Result<void> lock_while_mapped(int file);

// Returns whether a process has locked the file so. A process that has ended, or has begun another program,
// has not.
[[nodiscard]] bool is_locked(int file);

}  // namespace registry
