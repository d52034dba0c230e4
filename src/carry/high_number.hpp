// SPDX-License-Identifier: BSD-3-Clause
// carry/high_number: numbers for this library's own descriptors, out of the way of the program's.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/interpose.hpp"

namespace carry {

// Returns the number from which on they are; -1 when the process may have too few.
[[nodiscard]] inline int first_high_number() {
    rlimit limit{};
    constexpr rlim_t most = 1 << 20;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= 64
               ? static_cast<int>(std::min(limit.rlim_cur, most) * 3 / 4)
               : -1;
}

// Moves a descriptor that was just made, if there is room. Returns its number; -1 when fd is none.
[[nodiscard]] inline int high_number(int fd) {
    const int from = first_high_number();
    if (fd < 0 || from < 0) {
        return fd;
    }
    const int high = LIBC(fcntl)(fd, F_DUPFD_CLOEXEC, from);
    if (high >= 0) {
        (void)LIBC(close)(fd);
    }
    return high >= 0 ? high : fd;
}

}  // namespace carry
