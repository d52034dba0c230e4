// SPDX-License-Identifier: BSD-3-Clause
// base/user_memory: which pointers the kernel's calls refuse.
#pragma once

#include <cstddef>
#include <cstdint>

namespace base {

// The first address that no program has.
inline constexpr std::uintptr_t end_of_user_memory = std::uintptr_t{1} << 47;

// Returns false for a null pointer and its like, and for addresses that no program has.
[[nodiscard]] inline bool may_be_memory(const void *bytes, std::size_t size) {
    constexpr std::uintptr_t first = 1U << 16;  // /proc/sys/vm/mmap_min_addr
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes);
    return begin >= first && begin < end_of_user_memory && size <= end_of_user_memory - begin;
}

}  // namespace base
