// SPDX-License-Identifier: BSD-3-Clause
// stream/pieces: walking over bytes that are in several parts.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace stream {

// Calls use(piece of parts, how much came before it) for the bytes from skip on.
template <typename Use>
void for_pieces(std::span<const iovec> parts, std::size_t skip, std::size_t bytes, Use use) {
    std::size_t done = 0;
    for (const iovec &part : parts) {
        if (done == bytes) {
            return;
        }
        if (skip >= part.iov_len) {
            skip -= part.iov_len;
            continue;
        }
        const std::size_t size = std::min(part.iov_len - skip, bytes - done);
        use(std::span{static_cast<std::byte *>(part.iov_base) + skip, size}, done);
        done += size;
        skip = 0;
    }
}

// Returns where the bytes from `skip` on are, if they are in one part, else nullptr.
[[nodiscard]] inline const void *piece_of(std::span<const iovec> parts, std::size_t skip, std::size_t bytes) {
    for (const iovec &part : parts) {
        if (skip < part.iov_len) {
            return bytes <= part.iov_len - skip ? static_cast<const std::byte *>(part.iov_base) + skip
                                                : nullptr;
        }
        skip -= part.iov_len;
    }
    return nullptr;
}

}  // namespace stream
