// SPDX-License-Identifier: BSD-3-Clause
// registry/process: the names of the registry's files, and which process a name means.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace registry {

struct FileName {
    uid_t user = 0;
    ino_t space = 0;  // pid_namespaces(7): of process numbers
    pid_t process = 0;
    std::uint64_t start = 0;
    ino_t inode = 0;  // of the file itself: a name is given once, so no process removes a later file by it

    [[nodiscard]] std::string text() const;
};

// Returns nothing for the name of another file.
[[nodiscard]] std::optional<FileName> parse_file_name(std::string_view text);

// The namespace of this process's number, as stat(2) of /proc/self/ns/pid has it; 0 where /proc is not there,
// or that of another namespace.
[[nodiscard]] ino_t own_space();

// When a process began, in the kernel's ticks; nothing when there is no such process, or it has ended and its
// parent has not asked for it yet.
[[nodiscard]] std::optional<std::uint64_t> start_of(pid_t process);

// Returns whether the process of the file's name is there, and has the file in its memory. A process that has
// begun another program has not. If the caller may not look into the process, or if the process is of another
// namespace, it is enough that the process is there.
[[nodiscard]] bool is_in_use(const FileName &name, const std::string &path);

}  // namespace registry
