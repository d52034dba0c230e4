// SPDX-License-Identifier: BSD-3-Clause
// persist/mapping: what kind of memory an address is, told from the text of /proc. Paths are never opened
// again: they may name something else by now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "persist/proc_text.hpp"

namespace persist {

// How bytes stored there become durable.
enum class Durability {
    CacheLines,  // DAX (MAP_SYNC or a devdax): by writing back cache lines
    PageCache,   // a file on storage: by msync
    Volatile,    // not at all
};

struct Mapping {
    std::uintptr_t begin;
    std::uintptr_t end;
    Durability durability;
    std::string text;  // names the mapping; when Volatile, also why, and what to do
    FileNumber file{};
};

// The mappings that [address, address + length) touches, whole and in order. Reads /proc: microseconds to
// milliseconds. Any thread. EFAULT when a part is not mapped; the error of reading /proc.
[[nodiscard]] base::Result<std::vector<Mapping>> mappings_of(const void *address, std::size_t length);

// The same from given text. `is_devdax` says whether a path /dev/daxN.M is the character device it looks
// like; sysfs is mounted at `sys`.
[[nodiscard]] base::Result<std::vector<Mapping>> mappings_in(std::string_view smaps,
                                                             std::string_view mountinfo,
                                                             std::uintptr_t address, std::size_t length,
                                                             bool (*is_devdax)(const std::string &path),
                                                             std::string sys);

// Whether all pages of [address, address + length) are mapped, to whatever. Microseconds. Any thread.
[[nodiscard]] bool is_mapped(std::uintptr_t address, std::size_t length);

// Whether the first and the last page of mapped memory may be written. Linux from 6.11 on only looks; an
// older one writes to them, so that they are there afterwards. Microseconds; an older kernel takes
// milliseconds where they may not be written. Any thread.
[[nodiscard]] bool is_writable(std::uintptr_t address, std::size_t length);

}  // namespace persist
