// SPDX-License-Identifier: BSD-3-Clause
// base/own_pages: a process leaves memory that it shares with others, at its place.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace base {

// Puts pages that this process alone has in the place of shared ones, with a copy of their first `used`
// bytes; its later children share them. Returns false without memory, and then the memory is of no use any
// more. The copy is made in pieces, each by way of `piece`: where the program limits its address space
// (RLIMIT_AS), that has no room for another copy, but memory may take the place of other memory. No other
// thread of this process uses the memory meanwhile, or makes such a call.
[[nodiscard]] inline bool take_own_pages(void *memory, std::size_t used, std::size_t size) {
    static constinit std::array<std::byte, std::size_t{256} << 10> piece{};
    auto *const bytes = static_cast<std::byte *>(memory);
    for (std::size_t done = 0; done < size; done += piece.size()) {
        const bool is_last = done + piece.size() >= used;
        const std::size_t copied = std::min(used - done, piece.size());
        const std::size_t room = is_last ? size - done : piece.size();
        std::memcpy(piece.data(), bytes + done, copied);
        if (mmap(bytes + done, room, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != bytes + done) {
            return false;
        }
        std::memcpy(bytes + done, piece.data(), copied);
        if (is_last) {
            break;
        }
    }
    return true;
}

}  // namespace base
