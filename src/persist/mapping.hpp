// SPDX-License-Identifier: BSD-3-Clause
// persist/mapping: the kind of memory at an address, from the text of /proc. Paths are never opened again,
// because they may name another file by then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "persist/proc_text.hpp"

namespace persist {

// The way in which stored bytes become durable.
enum class WriteBack {
    CacheLines,  // DAX (MAP_SYNC or a devdax): cache lines are written back
    PageCache,   // a file on storage: msync makes them durable
    Volatile,    // they never become durable
};

struct Mapping {
    std::uintptr_t begin;
    std::uintptr_t end;
    WriteBack write_back;
    std::string text;  // names the mapping; when Volatile, also the reason, and a remedy
    FileNumber file{};
};

// Returns the mappings that [address, address + length) touches, whole and in order. Reads /proc, which takes
// microseconds to milliseconds. Any thread may call it. Fails with EFAULT when a part is not mapped, or with
// the error of reading /proc.
[[nodiscard]] base::Result<std::vector<Mapping>> mappings_of(const void *address, std::size_t length);

// Does the same with given text. `is_devdax` says whether a path /dev/daxN.M is the character device that it
// looks like; sysfs is mounted at `sys`.
[[nodiscard]] base::Result<std::vector<Mapping>> mappings_in(std::string_view smaps,
                                                             std::string_view mountinfo,
                                                             std::uintptr_t address, std::size_t length,
                                                             bool (*is_devdax)(const std::string &path),
                                                             std::string sys);

// Returns whether all pages of [address, address + length) are mapped. Takes microseconds. Any thread may
// call it.
[[nodiscard]] bool is_mapped(std::uintptr_t address, std::size_t length);

// Returns whether a part of mapped memory is a file's, so that a page fault there may wait for storage.
// Returns true where /proc does not tell it. Takes microseconds, and before Linux 6.11 one more for each area
// of the process. Any thread may call it.
[[nodiscard]] bool is_of_file(std::uintptr_t address, std::size_t length);

// Returns whether the first and the last page of mapped memory may be written. From Linux 6.11 on it only
// looks; on an older kernel it writes to them, so that they are present afterwards. Takes microseconds; an
// older kernel takes milliseconds when they may not be written. Any thread may call it.
[[nodiscard]] bool is_writable(std::uintptr_t address, std::size_t length);

}  // namespace persist
