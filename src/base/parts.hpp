// SPDX-License-Identifier: BSD-3-Clause
// base/parts: bytes in several places, as readv(2) and sendmsg(2) take them.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace base {

// Returns bytes as a part. A send does not write to them.
[[nodiscard]] inline iovec part_of(const void *bytes, std::size_t size) {
    return {.iov_base = const_cast<void *>(bytes), .iov_len = size};
}

// Returns a message of these parts, without a name. A send does not write to them.
[[nodiscard]] inline msghdr message_of(const iovec *parts, std::size_t count) {
    msghdr message{};
    message.msg_iov = const_cast<iovec *>(parts);
    message.msg_iovlen = count;
    return message;
}

// Returns how many bytes the parts have together. The caller ensures that the sum does not overflow.
[[nodiscard]] inline std::size_t size_of(std::span<const iovec> parts) {
    std::size_t size = 0;
    for (const iovec &part : parts) {
        size += part.iov_len;
    }
    return size;
}

// Calls use(bytes that are together, how many came before them) for up to `bytes` bytes from `skip` on.
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

// Appends the first bytes of the parts, until `to` has `most` bytes. Returns how many it appended. Throws
// std::bad_alloc, and then appends none.
inline std::size_t append(std::span<const iovec> parts, std::size_t most, std::vector<std::byte> &to) {
    const std::size_t bytes = std::min(size_of(parts), most - std::min(most, to.size()));
    if (to.size() + bytes > to.capacity()) {
        to.reserve(std::max(to.size() + bytes, 2 * to.capacity()));
    }
    for_pieces(parts, 0, bytes, [&](std::span<const std::byte> piece, std::size_t) {
        to.insert(to.end(), piece.begin(), piece.end());
    });
    return bytes;
}

}  // namespace base
