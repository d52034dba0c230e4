// SPDX-License-Identifier: BSD-3-Clause
// carry/first_bytes: the first bytes that a connection has moved through TCP in one direction. An end shows
// by them that it is the other end of that connection, and not another program of its host (SECURITY.md).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/parts.hpp"

namespace carry {

// It lies in memory that is shared with forked children. Any thread may read while one adds.
class FirstBytes {
public:
    static constexpr std::uint32_t most = 128;

    void clear() { count_.store(0, std::memory_order_relaxed); }
    // The connection has moved the first `bytes` of the parts, at this offset. Behind bytes that were not
    // added nothing is kept.
    void add(std::uint64_t offset, std::span<const iovec> parts, std::uint64_t bytes) {
        const std::uint32_t before = count_.load(std::memory_order_relaxed);
        if (offset != before || before == most) {
            return;
        }
        const std::uint64_t more = std::min<std::uint64_t>(bytes, most - before);
        base::for_pieces(parts, 0, more, [&](std::span<const std::byte> piece, std::size_t done) {
            std::memcpy(bytes_.data() + before + done, piece.data(), piece.size());
        });
        count_.store(before + static_cast<std::uint32_t>(more), std::memory_order_release);
    }
    [[nodiscard]] std::span<const std::byte> get() const {
        return std::span{bytes_}.first(count_.load(std::memory_order_acquire));
    }

private:
    std::atomic<std::uint32_t> count_;
    std::array<std::byte, most> bytes_;
};

// The first bytes of both directions, as one end has seen them.
struct BeginningOf {
    FirstBytes sent;
    FirstBytes received;
};

}  // namespace carry
