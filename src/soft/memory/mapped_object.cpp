// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/mapped_object: the thread makes its system calls by number: race detectors and
// libcarry-preload.so take the descriptors of all threads for those of one table.
#include "soft/memory/mapped_object.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cancelling.hpp"
#include "base/signals.hpp"
#include "persist/proc_text.hpp"
#include "soft/memory/peer_thread.hpp"

namespace soft {

namespace {

// A search ends after this much of the text of /proc, and after so many descriptors of the other process. It
// then takes a few milliseconds. The text of smaps is some seven times as long as that of maps.
constexpr std::size_t most_text = std::size_t{256} << 10;
constexpr std::size_t most_long_text = std::size_t{2} << 20;
constexpr unsigned most_descriptors = 2048;

constexpr unsigned unshare_descriptors = 1U << 1;  // CLOSE_RANGE_UNSHARE, Linux 5.9

int open_at(int folder, const char *name, int flags) {
    return static_cast<int>(syscall(SYS_openat, folder, name, flags | O_CLOEXEC, 0));
}

// A descriptor that is closed in the end, in the table that this thread has then.
struct Closed {
    explicit Closed(int one) : descriptor{one} {}
    ~Closed() {
        if (descriptor >= 0) {
            syscall(SYS_close, descriptor);
        }
    }
    Closed(const Closed &) = delete;
    Closed &operator=(const Closed &) = delete;

    const int descriptor;
};

// Returns the path that a symbolic link of /proc has, "" when there is none, or it is longer than a path.
// That asks no file system.
std::string_view target_of(int folder, const char *name, std::array<char, PATH_MAX> &room) {
    const long bytes = syscall(SYS_readlinkat, folder, name, room.data(), room.size());
    return {room.data(), bytes > 0 && bytes < PATH_MAX ? static_cast<std::size_t>(bytes) : 0};
}

// Returns whether an open object is the file. It takes what is known here, and does not wait for a server.
bool is(int object, const persist::FileNumber &file) {
    struct statx status{};
    if (syscall(SYS_statx, object, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &status) !=
        0) {
        return false;
    }
    const persist::DeviceNumber device =
        persist::DeviceNumber{status.stx_dev_major} << 32 | status.stx_dev_minor;
    return S_ISREG(status.stx_mode) && device == file.device && status.stx_ino == file.inode;
}

// Finds and maps one object, on a thread of its own.
class Search {
public:
    explicit Search(const PeerMemory &memory) : memory_{memory} {}

    // The table of descriptors is the program's until the text has told that there is a file.
    void run() noexcept {
        try {
            if (open_process() && find_areas()) {
                close_process();
                if (syscall(SYS_close_range, 0U, UINT_MAX, unshare_descriptors) == 0 && open_process()) {
                    find_and_map();
                }
            } else {
                close_process();
            }
        } catch (const std::bad_alloc &) {
            close_process();
        }
    }
    [[nodiscard]] void *mapped() const { return mapped_; }

private:
    enum class Found : std::uint8_t { Yes, No, Unknown };
    [[nodiscard]] bool open_process();
    void close_process();
    void find_and_map();
    [[nodiscard]] std::string text_of(const char *name, std::size_t most) const;
    [[nodiscard]] std::vector<persist::Area> areas(const char *name, std::size_t most) const;
    [[nodiscard]] bool find_areas();
    [[nodiscard]] bool is_watched() const;
    [[nodiscard]] int open_object() const;
    [[nodiscard]] int open_if_right(int folder, const char *name) const;
    template <typename Is>
    [[nodiscard]] Found find_descriptor(Is is) const;
    [[nodiscard]] int open_among_descriptors() const;
    void map(int file);

    const PeerMemory memory_;
    int process_ = -1;     // the folder in /proc
    persist::Area first_;  // the area of the first byte
    void *mapped_ = nullptr;
};

bool Search::open_process() {
    std::array<char, 32> folder;
    std::snprintf(folder.data(), folder.size(), "/proc/%d", memory_.thread);
    process_ = proc_is_of_this_namespace() ? open_at(AT_FDCWD, folder.data(), O_RDONLY | O_DIRECTORY) : -1;
    return process_ >= 0;
}

void Search::close_process() {
    if (process_ >= 0) {
        syscall(SYS_close, std::exchange(process_, -1));
    }
}

// The process may have changed its mappings since the first look.
void Search::find_and_map() {
    if (!find_areas() || is_watched()) {
        return;
    }
    if (const int file = open_object(); file >= 0) {
        map(file);
    }
}

// Returns the text of maps or smaps, up to an area behind the memory or as much as fits. The areas are in
// order, and a program with 10,000 connections has 20,000.
std::string Search::text_of(const char *name, std::size_t most) const {
    constexpr std::size_t block = 16384;
    std::string text;
    const int file = open_at(process_, name, O_RDONLY);
    const Closed closed{file};
    bool is_behind = false;
    while (file >= 0 && !is_behind && text.size() < most) {
        const std::size_t before = text.size();
        text.resize(before + block);
        const long got = syscall(SYS_read, file, text.data() + before, block);
        text.resize(before + static_cast<std::size_t>(std::max(got, 0L)));
        if (got <= 0) {
            break;
        }
        // The kernel gives whole lines to a reader with so much room.
        is_behind = !persist::areas_in(std::string_view{text}.substr(before), memory_.place + memory_.bytes,
                                       UINTPTR_MAX)
                         .empty();
    }
    return text;
}

std::vector<persist::Area> Search::areas(const char *name, std::size_t most) const {
    return persist::areas_in(text_of(name, most), memory_.place, memory_.place + memory_.bytes);
}

// Returns whether one file covers the memory in order, and the other process may access all of it. A process
// that may only read a file does not get this process to write there.
bool Search::find_areas() {
    const auto found = areas("maps", most_text);
    if (found.empty() || found.front().begin > memory_.place || found.front().file.inode == 0) {
        return false;
    }
    first_ = found.front();
    std::uint64_t reached = first_.begin;
    for (const persist::Area &area : found) {
        if (!area.shared || !area.readable || (memory_.writes && !area.stores) || area.begin != reached ||
            area.file != first_.file || area.offset - first_.offset != area.begin - first_.begin) {
            return false;
        }
        reached = area.end;
    }
    return reached >= memory_.place + memory_.bytes;
}

// Calls `is` with the folder, the name and the link of the other process's descriptors until it returns true.
template <typename Is>
Search::Found Search::find_descriptor(Is is) const {
    const int folder = open_at(process_, "fd", O_RDONLY | O_DIRECTORY);
    alignas(dirent64) std::array<char, 8192> block;
    std::array<char, PATH_MAX> room;
    unsigned seen = 0;
    while (folder >= 0 && seen < most_descriptors) {
        const long got = syscall(SYS_getdents64, folder, block.data(), block.size());
        if (got <= 0) {
            return got == 0 ? Found::No : Found::Unknown;
        }
        for (long at = 0; at < got;) {
            const auto *const entry = reinterpret_cast<const dirent64 *>(block.data() + at);
            at += entry->d_reclen;
            ++seen;
            if (is(folder, entry->d_name, target_of(folder, entry->d_name, room))) {
                return Found::Yes;
            }
        }
    }
    return Found::Unknown;
}

// Returns whether a program serves page faults of the memory, or learns of writes to it (userfaultfd(2)). It
// would not learn of what is written through another mapping. For the text of smaps the kernel looks at each
// page of the other process, some 20 milliseconds for a GiB, so a process without such a descriptor is
// believed not to have that.
bool Search::is_watched() const {
    if (find_descriptor([](int, const char *, std::string_view link) {
            return link == "anon_inode:[userfaultfd]";
        }) == Found::No) {
        return false;
    }
    const auto found = areas("smaps", most_long_text);
    return found.empty() || found.back().end < memory_.place + memory_.bytes ||
           std::ranges::any_of(found, &persist::Area::watched);
}

// The kernel's own name of the mapped object needs a capability. The kernel tells a file's path as it is from
// this process's root; another mount namespace may have it only from the other process's root. A memfd or a
// deleted file has only the descriptors that the other process still has.
int Search::open_object() const {
    std::array<char, 64> name;
    std::snprintf(name.data(), name.size(), "map_files/%" PRIxPTR "-%" PRIxPTR, first_.begin, first_.end);
    if (const int file = open_if_right(process_, name.data()); file >= 0) {
        return file;
    }
    if (first_.path.starts_with('/')) {
        for (const std::string &path : {first_.path, "root" + first_.path}) {
            if (const int file = open_if_right(process_, path.c_str()); file >= 0) {
                return file;
            }
        }
    }
    return open_among_descriptors();
}

// Opens a name when it is the object's. It opens nothing else, because that could have an effect (a device),
// or wait for ever (a FIFO).
int Search::open_if_right(int folder, const char *name) const {
    const int place = open_at(folder, name, O_PATH);
    if (place < 0 || !is(place, first_.file)) {
        return -1;
    }
    std::array<char, 48> again;
    std::snprintf(again.data(), again.size(), "/proc/thread-self/fd/%d", place);
    return open_at(AT_FDCWD, again.data(), (memory_.writes ? O_RDWR : O_RDONLY) | O_NONBLOCK);
}

// A descriptor of another file is not followed, because its file system may not answer any more.
int Search::open_among_descriptors() const {
    int file = -1;
    (void)find_descriptor([&](int folder, const char *name, std::string_view link) {
        file = link == first_.path ? open_if_right(folder, name) : -1;
        return file >= 0;
    });
    return file;
}

// On DAX, MAP_SYNC makes the file's metadata durable at a page's first write, as the other process's own
// mapping does. Another file refuses that flag. The pages of hugetlbfs are larger than those that the place
// and the length are rounded to here. A program that locks its future memory (mlockall(2)) would read the
// whole file, so the memory becomes accessible only when that is undone.
void Search::map(int file) {
    struct stat status;
    struct statfs system;
    const std::uint64_t page = memory_.place % static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t offset = first_.offset + (memory_.place - page - first_.begin);
    const std::uint64_t bytes = page + memory_.bytes;
    if (syscall(SYS_fstatfs, file, &system) != 0 || system.f_type == HUGETLBFS_MAGIC ||
        syscall(SYS_fstat, file, &status) != 0 || status.st_size < 0 ||
        offset > static_cast<std::uint64_t>(status.st_size) ||
        bytes > static_cast<std::uint64_t>(status.st_size) - offset) {
        return;
    }
    const int rights = PROT_READ | (memory_.writes ? PROT_WRITE : 0);
    const auto mapped = [&](int flags) {
        return syscall(SYS_mmap, nullptr, bytes, PROT_NONE, flags, file, offset);
    };
    long place = -1;
    if (memory_.durable) {
        place = mapped(MAP_SHARED_VALIDATE | MAP_SYNC);
    }
    if (!memory_.durable || (place == -1 && errno == EOPNOTSUPP)) {
        place = mapped(MAP_SHARED);
    }
    if (place == -1) {
        return;
    }
    if (syscall(SYS_munlock, place, bytes) == 0 && syscall(SYS_mprotect, place, bytes, rights) == 0) {
        mapped_ = reinterpret_cast<void *>(place);  // NOLINT(performance-no-int-to-ptr)
    } else {
        syscall(SYS_munmap, place, bytes);
    }
}

}  // namespace

void *map_object_of(const PeerMemory &memory) {
    if (memory.bytes == 0 || memory.place > UINT64_MAX - memory.bytes) {
        return nullptr;
    }
    Search search{memory};
    // Waiting for the thread is a cancellation point, and the thread uses this frame.
    const base::Cancelling disabled{PTHREAD_CANCEL_DISABLE};
    pthread_t thread{};
    const auto body = [](void *argument) -> void * {
        static_cast<Search *>(argument)->run();
        return nullptr;
    };
    const int error = [&] {
        const base::HeldSignals held;  // by the thread too, from its first instruction
        return pthread_create(&thread, nullptr, body, &search);
    }();
    if (error == 0) {
        pthread_join(thread, nullptr);
    }
    return search.mapped();
}

}  // namespace soft
