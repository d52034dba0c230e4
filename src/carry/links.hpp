// SPDX-License-Identifier: BSD-3-Clause
// carry/links: the links that this process has mapped, or has from its parent.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "carry/link.hpp"

namespace carry::links {

// A link that this process has mapped.
struct Mapped {
    std::atomic<Link *> link;  // nullptr: none
    // These name its Socket, if this process has closed that while others have it.
    std::atomic<std::uint32_t> closed_place;  // 0: it has not
    std::atomic<std::uint32_t> closed_number;
};

// A child has its own, which begin as its parent's.
inline constexpr std::size_t most = std::size_t{1} << 16;
extern constinit std::array<Mapped, most> all;

// Maps the link of a file; returns nullptr when that is not possible. One thread at a time calls.
[[nodiscard]] Link *map(int file);
// Does nothing with a link that is not mapped any more. Any thread may call.
void unmap(const Link *link);
// From here on unmap() leaves the memory to the end of the process.
void stay_mapped();
// Returns where a link is in the table; nullptr when it is not mapped any more.
[[nodiscard]] Mapped *find(const Link *link);

}  // namespace carry::links
