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
    pid_t process = 0;
    std::uint64_t start = 0;
    unsigned number = 0;

    [[nodiscard]] std::string text() const;
};

// Returns nothing for the name of another file.
[[nodiscard]] std::optional<FileName> parse_file_name(std::string_view text);

// When a process began, in the kernel's ticks; nothing when there is no such process, or it has ended and its
// parent has not asked for it yet.
[[nodiscard]] std::optional<std::uint64_t> start_of(pid_t process);

// Whether the process that the file's name means is there, and has the file in its memory. A process that has
// begun another program has not. Where the caller may not look into the process, it counts that the process
// is there.
[[nodiscard]] bool is_in_use(const FileName &name, const std::string &path);

}  // namespace registry
