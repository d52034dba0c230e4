// SPDX-License-Identifier: BSD-3-Clause
// persist/proc_text: parses the text of /proc/PID/smaps and /proc/PID/mountinfo (proc(5)), without I/O.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace persist {

// A device number: major in the upper 32 bits, minor in the lower.
using DeviceNumber = std::uint64_t;

// Parses "MAJOR:MINOR", which is hexadecimal in smaps, and decimal in mountinfo and in sysfs. Returns nothing
// for any other text.
[[nodiscard]] std::optional<DeviceNumber> device_number(std::string_view text, int radix);

// Identifies a file: no other has the number while it is mapped.
struct FileNumber {
    DeviceNumber device = 0;
    std::uint64_t inode = 0;
    [[nodiscard]] auto operator<=>(const FileNumber &) const = default;
};

// One area of an address space.
struct Area {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    bool readable = false;  // PROT_READ
    bool stores = false;    // PROT_WRITE
    bool shared = false;    // MAP_SHARED
    bool writable = false;  // MAP_SHARED of a file open for writing ("sh"): msync has an effect
    bool sync = false;      // MAP_SYNC ("sf")
    bool watched = false;   // userfaultfd(2) serves its faults ("um", "uw", "ui")
    FileNumber file;
    std::uint64_t offset = 0;  // of the first byte, in the file
    std::string path;          // as the kernel prints it, "" for plain anonymous memory
};

// One mounted file system.
struct Mount {
    DeviceNumber device = 0;
    std::string point;
    std::string kind;
    std::string source;
    std::string options;  // of the file system, not of the mount

    [[nodiscard]] bool is_one_of(auto... kinds) const { return ((kind == kinds) || ...); }
};

// Returns the areas that are at least partly in [begin, end), in order. Lines that are not valid are skipped.
// The text of /proc/PID/maps will do, where `writable`, `sync` and `watched` are not asked for.
[[nodiscard]] std::vector<Area> areas_in(std::string_view smaps, std::uintptr_t begin, std::uintptr_t end);

// Returns every mount, in order. Lines that are not valid are skipped.
[[nodiscard]] std::vector<Mount> mounts_in(std::string_view mountinfo);

}  // namespace persist
