// SPDX-License-Identifier: BSD-3-Clause
// base/file_limit: a process's limit of the size of files.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <cstddef>

namespace base {

// Returns whether this process may make a file of so many bytes; otherwise errno is EFBIG. The call that
// makes a larger one raises SIGXFSZ, which ends a program.
[[nodiscard]] inline bool may_make_file(std::size_t bytes) {
    rlimit limit{};
    const bool may = getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= bytes;
    errno = may ? errno : EFBIG;
    return may;
}

}  // namespace base
