// SPDX-License-Identifier: BSD-3-Clause
// carry/links: the links that this process has mapped, or has from its parent.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "carry/link.hpp"

namespace carry::links {

// Maps the link of a file; returns nullptr when that is not possible. Any thread may call it, as the others.
[[nodiscard]] Link *map(int file);
// Does nothing with a link that is not mapped any more.
void unmap(const Link *link);

// A child has its own, which begin as its parent's.
inline constexpr std::size_t most = std::size_t{1} << 16;
extern constinit std::array<std::atomic<Link *>, most> all;  // nullptr: none

}  // namespace carry::links
