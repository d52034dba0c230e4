// SPDX-License-Identifier: BSD-3-Clause
// persist/mapping: the verdict on each area of memory.
#include "persist/mapping.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "persist/storage.hpp"

namespace persist {

namespace {

struct Verdict {
    WriteBack write_back;
    std::string text;
};

Verdict lost(std::string why, const char *remedy) {
    return {WriteBack::Volatile, std::move(why) + "; " + remedy};
}

constexpr const char *use_a_file = "map a file on a disk or a DAX device with MAP_SHARED";
constexpr const char *move_the_file = "put the file on a disk or a DAX device";

// These are the kinds on a block device, and the kinds that reach storage without a block device of this
// machine.
bool reaches_storage(const Mount &mount) {
    return mount.source.starts_with("/dev/") || mount.kind.starts_with("fuse") ||
           mount.is_one_of("nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "zfs", "btrfs",
                           "bcachefs", "lustre", "gpfs", "ubifs", "vboxsf", "fakeowner", "overlay", "aufs");
}

Verdict judge_deleted(const std::string &path) {
    if (path.starts_with("/memfd:") || path.starts_with("/dev/zero ") || path.starts_with("/SYSV") ||
        path.starts_with("/anon_hugepage ")) {
        return lost("shared memory without a file", use_a_file);
    }
    return lost("a deleted file, which nobody can open again", "keep the file's name while it is in use");
}

Verdict judge(const Area &area, const Storage &storage, bool (*is_devdax)(const std::string &path)) {
    if (!area.path.starts_with('/')) {
        return lost("anonymous memory", use_a_file);
    }
    if (!area.shared) {
        return lost("a private copy of the file", "map it with MAP_SHARED");
    }
    if (area.path.ends_with(" (deleted)")) {
        return judge_deleted(area.path);
    }
    if (!area.writable) {
        return lost("a file open for reading only", "open it for reading and writing");
    }
    if (area.path.starts_with("/dev/dax") && is_devdax(area.path)) {
        return {WriteBack::CacheLines, "devdax"};
    }
    const Mount *const mount = storage.mount_of(area);
    if (mount == nullptr) {
        return lost("a file on an unknown file system", move_the_file);
    }
    if (const std::string why = storage.why_lost(*mount); !why.empty()) {
        return lost("a file on " + why, move_the_file);
    }
    if (area.sync) {
        return {WriteBack::CacheLines, "DAX on " + mount->kind};
    }
    if (!reaches_storage(*mount)) {
        return lost("a file on " + mount->kind + ", not known to be storage", move_the_file);
    }
    return {WriteBack::PageCache, "page cache on " + mount->kind};
}

Mapping mapping_of(const Area &area, Verdict verdict) {
    std::array<char, 48> range;
    std::snprintf(range.data(), range.size(), "%jx-%jx ", static_cast<std::uintmax_t>(area.begin),
                  static_cast<std::uintmax_t>(area.end));
    std::string text =
        range.data() + (area.path.empty() ? "" : area.path + " ") + "is " + std::move(verdict.text);
    return {area.begin, area.end, verdict.write_back, std::move(text), area.file};
}

// Reads all of a file of /proc, whose size is not known before.
base::Result<std::string> contents_of(const char *path) {
    const base::Fd fd{::open(path, O_RDONLY | O_CLOEXEC)};
    if (!fd) {
        return base::last_failure();
    }
    std::string text;
    std::array<char, 16384> block;
    for (;;) {
        const ssize_t got = ::read(fd.get(), block.data(), block.size());
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return base::last_failure();
        }
        if (got == 0) {
            return text;
        }
        text.append(block.data(), static_cast<std::size_t>(got));
    }
}

bool is_character_device(const std::string &path) {
    struct stat status;
    return ::stat(path.c_str(), &status) == 0 && S_ISCHR(status.st_mode);
}

}  // namespace

base::Result<std::vector<Mapping>> mappings_in(std::string_view smaps, std::string_view mountinfo,
                                               std::uintptr_t address, std::size_t length,
                                               bool (*is_devdax)(const std::string &path), std::string sys) {
    if (length > UINTPTR_MAX - address) {
        return base::failure(EFAULT);
    }
    const std::uintptr_t end = address + length;
    const Storage storage{mounts_in(mountinfo), std::move(sys)};
    std::vector<Mapping> mappings;
    std::uintptr_t reached = address;
    for (const Area &area : areas_in(smaps, address, end)) {
        if (area.begin > reached) {
            break;
        }
        reached = area.end;
        mappings.push_back(mapping_of(area, judge(area, storage, is_devdax)));
    }
    if (reached < end) {
        return base::failure(EFAULT);
    }
    return mappings;
}

base::Result<std::vector<Mapping>> mappings_of(const void *address, std::size_t length) {
    // It reads the thread's file and not the process's, because the main thread's is empty once that thread
    // has ended.
    const auto smaps = contents_of("/proc/thread-self/smaps");
    const auto mountinfo = contents_of("/proc/thread-self/mountinfo");
    if (!smaps || !mountinfo) {
        const base::Error error = smaps ? mountinfo.error() : smaps.error();
        BASE_LOG(Error, "cannot read /proc/thread-self/%s (error %d): mount /proc",
                 smaps ? "mountinfo" : "smaps", error.number);
        return base::Failure{error};
    }
    return mappings_in(*smaps, *mountinfo, reinterpret_cast<std::uintptr_t>(address), length,
                       is_character_device, "/sys");
}

// It uses mincore and not msync, because memcheck takes msync for a use of whole pages.
bool is_mapped(std::uintptr_t address, std::size_t length) {
    const auto page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    std::array<unsigned char, 4096> resident;  // the result is not used
    const std::uintptr_t end = address + length;
    for (std::uintptr_t page = address - address % page_size; page < end;) {
        const std::size_t bytes = std::min<std::size_t>(end - page, resident.size() * page_size);
        if (mincore(reinterpret_cast<void *>(page), bytes, resident.data()) != 0) {
            return false;
        }
        page += bytes;
    }
    return true;
}

namespace {

// PROCMAP_QUERY takes and returns this (proc_pid_maps(5)); the headers of Linux before 6.11 lack it.
struct AreaQuery {
    std::uint64_t size = sizeof(AreaQuery);
    std::uint64_t query_flags = 0;
    std::uint64_t query_addr = 0;
    std::uint64_t vma_start = 0;
    std::uint64_t vma_end = 0;
    std::uint64_t vma_flags = 0;
    std::array<std::uint64_t, 3> page_size_offset_inode{};
    std::array<std::uint32_t, 4> device_and_name_sizes{};
    std::array<std::uint64_t, 2> name_addresses{};
};
constexpr std::uint64_t query_writable = 2;
constexpr std::uint64_t query_this_or_next = 16;  // the area of the address, or the first one behind it
constexpr std::uint64_t query_of_file = 32;       // only areas of files are asked for
constexpr unsigned long procmap_query = _IOWR('f', 17, AreaQuery);

// Returns whether the area of the address may be written, or an error when the kernel cannot tell (ENOTTY
// before Linux 6.11).
base::Result<bool> asked_of_kernel(const base::Fd &maps, std::uintptr_t address) {
    AreaQuery query{.query_addr = address};
    if (!maps || ioctl(maps.get(), procmap_query, &query) != 0) {
        return base::last_failure();
    }
    return (query.vma_flags & query_writable) != 0;
}

constexpr const char *areas_of_process = "/proc/thread-self/maps";  // see mappings_of()

// Returns whether this holds for an area of this memory, by the text of /proc.
bool any_area(std::uintptr_t address, std::size_t length, bool (*holds)(const Area &)) {
    const auto text = contents_of(areas_of_process);
    return text && std::ranges::any_of(areas_in(*text, address, address + length), holds);
}

}  // namespace

bool is_of_file(std::uintptr_t address, std::size_t length) {
    const base::Fd maps{::open(areas_of_process, O_RDONLY | O_CLOEXEC)};
    if (!maps) {
        return true;
    }
    AreaQuery query{.query_flags = query_this_or_next | query_of_file, .query_addr = address};
    if (ioctl(maps.get(), procmap_query, &query) == 0) {
        return query.vma_start < address + length;
    }
    return errno != ENOENT &&  // there is such an area
           any_area(address, length, [](const Area &area) { return area.file.inode != 0; });
}

// The page is written only where an older kernel leaves no quicker way. A first write to one page of a file
// keeps the kernel from ever mapping the pages around it as one large page, and then each transfer into the
// file faults on each page. Linux before 5.14 does not know the advice, and no Linux gives it for the memory
// of devices; then the text of /proc decides.
bool is_writable(std::uintptr_t address, std::size_t length) {
    const auto page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const base::Fd maps{::open(areas_of_process, O_RDONLY | O_CLOEXEC)};
    const auto may_write = [&](std::uintptr_t byte) {
        if (const auto answer = asked_of_kernel(maps, byte)) {
            return *answer;
        }
        return madvise(reinterpret_cast<void *>(byte - byte % page_size), page_size, MADV_POPULATE_WRITE) ==
                   0 ||
               any_area(byte, 1, [](const Area &area) { return area.stores; });
    };
    return may_write(address) && may_write(address + length - 1);
}

}  // namespace persist
