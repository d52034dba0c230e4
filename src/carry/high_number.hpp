// SPDX-License-Identifier: BSD-3-Clause
// carry/high_number: numbers for this library's own descriptors, out of the way of the program's.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/interpose.hpp"

namespace carry {

// Moves a descriptor that was just made, if there is room. Returns its number; -1 when fd is none.
[[nodiscard]] inline int high_number(int fd) {
    rlimit limit{};
    if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < 64) {
        return fd;
    }
    constexpr rlim_t most = 1 << 20;
    const auto from = static_cast<int>(std::min(limit.rlim_cur, most) * 3 / 4);
    const int high = LIBC(fcntl)(fd, F_DUPFD_CLOEXEC, from);
    if (high >= 0) {
        (void)LIBC(close)(fd);
    }
    return high >= 0 ? high : fd;
}

}  // namespace carry
