// SPDX-License-Identifier: BSD-3-Clause
// carry/moving: what sending and receiving share: the time, the counts of the kernel, and pieces of buffers
// and of the ring.
#pragma once

#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.hpp"
#include "base/interpose.hpp"
#include "base/parts.hpp"
#include "base/user_memory.hpp"
#include "carry/link.hpp"

namespace carry {

inline std::int64_t now() {
    return base::Clock::now().time_since_epoch().count();
}
inline std::int64_t in(std::chrono::microseconds time) {
    return now() + std::chrono::nanoseconds{time}.count();
}

inline int waiting_bytes(int fd, unsigned long which) {
    int bytes = 0;
    return LIBC(ioctl)(fd, which, &bytes) == 0 ? bytes : -1;
}

// These bytes of the parts, from `skip` on.
class PartsFrom {
public:
    PartsFrom(std::span<const iovec> parts, std::size_t skip, std::size_t bytes) {
        base::for_pieces(parts, skip, bytes, [this](auto piece, std::size_t) {
            parts_[count_++] = {.iov_base = piece.data(), .iov_len = piece.size()};
        });
    }
    [[nodiscard]] msghdr message() { return base::message_of(parts_.data(), count_); }
    [[nodiscard]] std::span<const iovec> get() const { return std::span{parts_}.first(count_); }

private:
    std::array<iovec, IOV_MAX> parts_;
    std::size_t count_ = 0;
};

inline bool are_in_memory(std::span<const iovec> parts) {
    return std::ranges::all_of(parts, [](const iovec &part) {
        return part.iov_len == 0 || base::may_be_memory(part.iov_base, part.iov_len);
    });
}

// Calls use(place in the ring, how many bytes are there together, how many came before) for bytes from a
// position on, which wrap at the ring's end.
template <typename Use>
void for_ring_pieces(std::uint64_t position, std::uint64_t bytes, Use use) {
    for (std::uint64_t done = 0; done < bytes;) {
        const std::uint64_t place = (position + done) % Direction::ring_bytes;
        const std::uint64_t size = std::min(bytes - done, Direction::ring_bytes - place);
        use(place, size, done);
        done += size;
    }
}

}  // namespace carry
