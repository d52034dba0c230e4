// SPDX-License-Identifier: BSD-3-Clause
#include "soft/ground/limits.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace soft::limits {

std::size_t share_of_descriptors() {
    constexpr std::size_t share = 4;
    rlimit open{};
    const bool known = getrlimit(RLIMIT_NOFILE, &open) == 0;
    return known ? std::max<std::size_t>(open.rlim_cur / share, 1) : SIZE_MAX;
}

}  // namespace soft::limits
