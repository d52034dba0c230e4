// SPDX-License-Identifier: BSD-3-Clause
// cli/page_cache: drops pages, compares the pages that stay with storage (open(2), O_DIRECT), and corrects
// them.
#include "cli/page_cache.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/fd.hpp"
#include "cli/mapping.hpp"
#include "cli/pool_format.hpp"

namespace cli {

namespace {

constexpr std::uint64_t window_size = std::uint64_t{1} << 30;  // bytes that are checked at once

struct alignas(page_size) Page {
    std::array<std::byte, page_size> bytes;
};

// Returns the pages of the file from `begin` to `end` that are in the page cache (mincore(2)).
Outcome<std::vector<std::uint64_t>> resident(int fd, std::uint64_t begin, std::uint64_t end) {
    const auto size = static_cast<std::size_t>(end - begin);
    void *const window = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(begin));
    if (window == MAP_FAILED) {
        return failed("mmap: {}", errno_text(errno));
    }
    const auto step = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> states((size + step - 1) / step);
    const int result = mincore(window, size, states.data());
    const int error = errno;
    munmap(window, size);
    if (result != 0) {
        return failed("mincore: {}", errno_text(error));
    }
    std::vector<std::uint64_t> pages;
    for (std::uint64_t offset = 0; offset < size; offset += page_size) {
        if ((states[offset / step] & 1) != 0) {
            pages.push_back(begin + offset);
        }
    }
    return pages;
}

// Writes the bytes of storage into the page cache.
Outcome<> set_right(int fd, int direct, std::uint64_t offset) {
    Page stored;
    Page cached;
    const auto where = static_cast<off_t>(offset);
    const ssize_t got = pread(direct, stored.bytes.data(), page_size, where);
    if (got <= 0 || pread(fd, cached.bytes.data(), page_size, where) < got) {
        return failed("cannot read: {}", got == 0 ? "it was truncated" : errno_text(errno));
    }
    const auto size = static_cast<std::size_t>(got);
    if (std::memcmp(stored.bytes.data(), cached.bytes.data(), size) != 0 &&
        pwrite(fd, stored.bytes.data(), size, where) != got) {
        return failed("storage has other bytes at {} than the page cache, which cannot be set right: {}",
                      offset, errno == EBADF ? "the file is open to be read only" : errno_text(errno));
    }
    return {};
}

Outcome<> forget(int fd) {
    struct stat status{};
    if (fstat(fd, &status) != 0) {
        return failed("{}", errno_text(errno));
    }
    // Only pages that are written can be dropped. A failure here makes the page cache differ from storage;
    // the code below finds that difference.
    (void)fdatasync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    const auto size = static_cast<std::uint64_t>(status.st_size);
    base::Fd direct;
    for (std::uint64_t begin = 0; begin < size; begin += window_size) {
        for (const std::uint64_t page : TRY(resident(fd, begin, std::min(size, begin + window_size)))) {
            if (!direct) {
                direct.reset(
                    open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
            }
            if (!direct) {
                return failed("cannot read past the page cache: {}", errno_text(errno));
            }
            TRY(set_right(fd, direct.get(), page));
        }
    }
    if (direct && fdatasync(fd) != 0) {
        return failed("cannot make it durable: {}", errno_text(errno));
    }
    return {};
}

}  // namespace

Outcome<> forget_cached(int fd, const std::string &path) {
    if (const auto forgotten = forget(fd); !forgotten) {
        return failed("pool {}: {}", path, forgotten.error().text);
    }
    return {};
}

}  // namespace cli
