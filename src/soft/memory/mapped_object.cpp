// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/mapped_object: see the header. The thread makes its system calls by number: race detectors and
// librsocket-preload.so take the descriptors of all threads for those of one table.
#include "soft/memory/mapped_object.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cinttypes>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "persist/guard.hpp"
#include "persist/proc_text.hpp"

namespace soft {

namespace {

// A search ends after this much of the text of /proc, and after so many descriptors of the other process. It
// then takes a few milliseconds.
constexpr std::size_t most_text = std::size_t{256} << 10;
constexpr unsigned most_descriptors = 2048;

constexpr unsigned unshare_descriptors = 1U << 1;  // CLOSE_RANGE_UNSHARE, Linux 5.9

int open_at(int folder, const char *name, int flags) {
    return static_cast<int>(syscall(SYS_openat, folder, name, flags | O_CLOEXEC, 0));
}

bool status_of(int folder, const char *name, int flags, struct stat &status) {
    return syscall(SYS_newfstatat, folder, name, &status, flags) == 0;
}

bool is(const struct stat &status, const persist::FileNumber &file) {
    const persist::DeviceNumber device =
        persist::DeviceNumber{major(status.st_dev)} << 32 | minor(status.st_dev);
    return S_ISREG(status.st_mode) && device == file.device && status.st_ino == file.inode;
}

// Finds and maps one object, on a thread of its own.
class Search {
public:
    explicit Search(const PeerMemory &memory) : memory_{memory} {}

    void run() noexcept {
        if (syscall(SYS_close_range, 0U, UINT_MAX, unshare_descriptors) != 0) {
            return;
        }
        try {
            find_and_map();
        } catch (const std::bad_alloc &) {
            return;
        }
    }
    [[nodiscard]] void *mapped() const { return mapped_; }

private:
    void find_and_map();
    [[nodiscard]] std::string text_of_maps() const;
    [[nodiscard]] bool find_areas();
    [[nodiscard]] int open_object() const;
    [[nodiscard]] int open_if_right(int folder, const char *name) const;
    [[nodiscard]] int open_among_descriptors() const;
    void map(int file);

    const PeerMemory memory_;
    int process_ = -1;     // the folder in /proc
    persist::Area first_;  // the area of the first byte
    void *mapped_ = nullptr;
};

void Search::find_and_map() {
    std::array<char, 32> folder;
    std::snprintf(folder.data(), folder.size(), "/proc/%d", memory_.thread);
    process_ = open_at(AT_FDCWD, folder.data(), O_RDONLY | O_DIRECTORY);
    if (process_ < 0 || !find_areas()) {
        return;
    }
    if (const int file = open_object(); file >= 0) {
        map(file);
    }
}

// Returns whole lines, up to one behind the memory or as many as fit. The lines are in order, and a program
// with 10,000 connections has 20,000.
std::string Search::text_of_maps() const {
    std::string text;
    const int maps = open_at(process_, "maps", O_RDONLY);
    std::array<char, 16384> block;
    bool is_behind = false;
    while (maps >= 0 && !is_behind && text.size() < most_text) {
        const long got = syscall(SYS_read, maps, block.data(), block.size());
        if (got <= 0) {
            break;
        }
        // The kernel gives whole lines to a reader with so much room.
        text.append(block.data(), static_cast<std::size_t>(got));
        const std::size_t last = text.find_last_of('\n', text.size() - 2) + 1;
        std::uint64_t begin = 0;
        (void)std::from_chars(text.data() + last, text.data() + text.size(), begin, 16);
        is_behind = begin >= memory_.place + memory_.bytes;
    }
    text.resize(text.rfind('\n') + 1);
    return text;
}

// Returns whether one file covers the memory in order, and the other process may access all of it. A process
// that may only read a file does not get this process to write there.
bool Search::find_areas() {
    const auto areas = persist::areas_in(text_of_maps(), memory_.place, memory_.place + memory_.bytes);
    if (areas.empty() || areas.front().begin > memory_.place || areas.front().file.inode == 0) {
        return false;
    }
    first_ = areas.front();
    std::uint64_t reached = first_.begin;
    for (const persist::Area &area : areas) {
        if (!area.shared || !area.readable || (memory_.writes && !area.stores) || area.begin != reached ||
            area.file != first_.file || area.offset - first_.offset != area.begin - first_.begin) {
            return false;
        }
        reached = area.end;
    }
    return reached >= memory_.place + memory_.bytes;
}

// The kernel's own name of the mapped object needs a capability. A file has a path, seen from the other
// process's root. A memfd or a deleted file has only the descriptors that the other process still has.
int Search::open_object() const {
    std::array<char, 64> name;
    std::snprintf(name.data(), name.size(), "map_files/%" PRIxPTR "-%" PRIxPTR, first_.begin, first_.end);
    if (const int file = open_if_right(process_, name.data()); file >= 0) {
        return file;
    }
    if (first_.path.starts_with('/')) {
        if (const int file = open_if_right(process_, ("root" + first_.path).c_str()); file >= 0) {
            return file;
        }
    }
    return open_among_descriptors();
}

// Opens a name when it is the object's. It opens nothing else, because that could have an effect (a device),
// or wait for ever (a FIFO).
int Search::open_if_right(int folder, const char *name) const {
    const int place = open_at(folder, name, O_PATH);
    struct stat status;
    if (place < 0 || !status_of(place, "", AT_EMPTY_PATH, status) || !is(status, first_.file)) {
        return -1;
    }
    std::array<char, 48> again;
    std::snprintf(again.data(), again.size(), "/proc/thread-self/fd/%d", place);
    return open_at(AT_FDCWD, again.data(), (memory_.writes ? O_RDWR : O_RDONLY) | O_NONBLOCK);
}

int Search::open_among_descriptors() const {
    const int folder = open_at(process_, "fd", O_RDONLY | O_DIRECTORY);
    alignas(dirent64) std::array<char, 8192> block;
    unsigned seen = 0;
    while (folder >= 0 && seen < most_descriptors) {
        const long got = syscall(SYS_getdents64, folder, block.data(), block.size());
        if (got <= 0) {
            break;
        }
        for (long at = 0; at < got;) {
            const auto *const entry = reinterpret_cast<const dirent64 *>(block.data() + at);
            at += entry->d_reclen;
            ++seen;
            struct stat status;
            if (!status_of(folder, entry->d_name, 0, status) || !is(status, first_.file)) {
                continue;
            }
            if (const int file = open_if_right(folder, entry->d_name); file >= 0) {
                return file;
            }
        }
    }
    return -1;
}

// On DAX, MAP_SYNC makes the file's metadata durable at a page's first write, as the other process's own
// mapping does. Another file refuses that flag.
void Search::map(int file) {
    struct stat status;
    const std::uint64_t page = memory_.place % static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t offset = first_.offset + (memory_.place - page - first_.begin);
    const std::uint64_t bytes = page + memory_.bytes;
    if (!status_of(file, "", AT_EMPTY_PATH, status) || status.st_size < 0 ||
        offset > static_cast<std::uint64_t>(status.st_size) ||
        bytes > static_cast<std::uint64_t>(status.st_size) - offset) {
        return;
    }
    const int rights = PROT_READ | (memory_.writes ? PROT_WRITE : 0);
    const auto mapped = [&](int flags) {
        return syscall(SYS_mmap, nullptr, bytes, rights, flags, file, offset);
    };
    long place = -1;
    if (memory_.durable) {
        place = mapped(MAP_SHARED_VALIDATE | MAP_SYNC);
    }
    if (place == -1) {
        place = mapped(MAP_SHARED);
    }
    if (place != -1) {
        mapped_ = reinterpret_cast<void *>(place);  // NOLINT(performance-no-int-to-ptr)
    }
}

}  // namespace

void *map_object_of(const PeerMemory &memory) {
    if (memory.bytes == 0 || memory.place > UINT64_MAX - memory.bytes) {
        return nullptr;
    }
    Search search{memory};
    const sigset_t blocked = persist::signals_of_others();
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    pthread_t thread{};
    const auto body = [](void *argument) -> void * {
        static_cast<Search *>(argument)->run();
        return nullptr;
    };
    const int error = pthread_create(&thread, nullptr, body, &search);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error != 0) {
        return nullptr;
    }
    pthread_join(thread, nullptr);
    return search.mapped();
}

}  // namespace soft
