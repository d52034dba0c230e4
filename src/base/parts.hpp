// SPDX-License-Identifier: BSD-3-Clause
// base/parts: bytes in several places, as readv(2) and sendmsg(2) take them.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

namespace base {

// Returns how many bytes the parts have together. The caller knows that the sum does not overflow.
[[nodiscard]] inline std::size_t size_of(std::span<const iovec> parts) {
    std::size_t size = 0;
    for (const iovec &part : parts) {
        size += part.iov_len;
    }
    return size;
}

}  // namespace base
