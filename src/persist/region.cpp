// SPDX-License-Identifier: BSD-3-Clause
// persist/region: makes cache lines durable through libpmem2, and pages through msync.
#include "persist/region.hpp"

#include <libpmem2.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/log.hpp"
#include "persist/guard.hpp"

namespace persist {

namespace {

// Returns libpmem2's function that writes back cache lines, or null when libpmem2 fails. The function depends
// on the granularity of a map, and not on its addresses, so one map, of a page of our own, gives it for all
// memory. A map for each region would fail: libpmem2 refuses memory that the program itself, or an
// overlapping region, has mapped through it.
pmem2_persist_fn cache_line_function() {
    static const pmem2_persist_fn function = []() -> pmem2_persist_fn {
        const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        void *const page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pmem2_source *source = nullptr;
        // The map is never deleted, so the function is valid as long as the library.
        static pmem2_map *map = nullptr;
        int error = page == MAP_FAILED ? -errno : pmem2_source_from_anon(&source, size);
        if (error == 0) {
            error = pmem2_map_from_existing(&map, source, page, size, PMEM2_GRANULARITY_CACHE_LINE);
            pmem2_source_delete(&source);
        }
        if (error != 0) {
            BASE_LOG(Error, "libpmem2 cannot flush cache lines: %s", pmem2_errormsg());
            return nullptr;
        }
        return pmem2_get_persist_fn(map);
    }();
    return function;
}

// This is not instrumented: other threads store to these bytes at the same time, and the value that is read
// does not matter.
__attribute__((no_sanitize("thread"), no_sanitize("address"), noinline)) void touch(std::uintptr_t address) {
    static_cast<void>(*reinterpret_cast<const volatile char *>(address));
}

// Returns whether the byte is still mapped. The caller passes the last byte of a range, because a truncation
// takes that first. msync does not report a truncation, nor do emulators of the flush instruction.
[[nodiscard]] bool still_there(std::uintptr_t address) {
    return guarded(reinterpret_cast<const void *>(address), 1, [address] { touch(address); });
}

int persist_cache_lines(std::uintptr_t begin, std::uintptr_t end) {
    const pmem2_persist_fn function = cache_line_function();
    const auto *const address = reinterpret_cast<const void *>(begin);
    // The first cache line that is written back may begin before the first byte.
    constexpr std::uintptr_t most_line_bytes = 256;
    const std::uintptr_t first_line = begin / most_line_bytes * most_line_bytes;
    return guarded(reinterpret_cast<const void *>(first_line), end - first_line,
                   [=] { function(address, end - begin); }) &&
                   still_there(end - 1)
               ? 0
               : EFAULT;
}

int persist_pages(File &file, std::uintptr_t begin, std::uintptr_t end) {
    const auto page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t first_page = begin / page_size * page_size;
    if (const int error = file.sync(first_page, end - first_page); error != 0) {
        return error;
    }
    return still_there(end - 1) ? 0 : EFAULT;
}

}  // namespace

base::Result<std::unique_ptr<Region>> Region::open(void *address, std::size_t length) {
    auto mappings = mappings_of(address, length);
    if (!mappings) {
        BASE_LOG(Error, "memory at %p, %zu bytes, cannot be made durable: %s", address, length,
                 mappings.error().number == EFAULT ? "not all of it is mapped" : "its mapping is unknown");
        return base::Failure{mappings.error()};
    }
    return open_as(address, length, std::move(*mappings));
}

base::Result<std::unique_ptr<Region>> Region::open_as(void *address, std::size_t length,
                                                      std::vector<Mapping> mappings) {
    std::vector<Part> parts;
    Worker *worker = nullptr;
    for (Mapping &mapping : mappings) {
        if (mapping.write_back == WriteBack::Volatile) {
            // The program may not need durability.
            BASE_LOG(Warning, "memory at %p, %zu bytes, cannot be made durable: %s", address, length,
                     mapping.text.c_str());
            return base::failure(EOPNOTSUPP);
        }
        if (mapping.write_back == WriteBack::CacheLines && cache_line_function() == nullptr) {
            return base::failure(EOPNOTSUPP);
        }
        std::shared_ptr<File> file;
        if (mapping.write_back == WriteBack::PageCache) {
            file = File::of(mapping.file);
            worker = worker != nullptr ? worker : &Worker::of(mapping.file.device);
        }
        if (const int failed = file != nullptr ? file->failed() : 0; failed != 0) {
            BASE_LOG(
                Error,
                "memory at %p, %zu bytes, cannot be made durable: storage has lost bytes of its file (%s): "
                "look after the file, then start this process again; %s",
                address, length, strerrordesc_np(failed), mapping.text.c_str());
            return base::failure(failed);
        }
        parts.push_back({std::move(mapping), std::move(file)});
    }
    install_guard();
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    return std::unique_ptr<Region>{new Region{begin, begin + length, std::move(parts), worker}};
}

Region::Region(std::uintptr_t begin, std::uintptr_t end, std::vector<Part> parts, Worker *worker)
    : begin_{begin}, end_{end}, parts_{std::move(parts)}, worker_{worker} {}

// Returns the first failure; none when the whole range is durable.
std::optional<Region::Failure> Region::sync(std::uintptr_t begin, std::uintptr_t end) const {
    for (const auto &[mapping, file] : parts_) {
        const std::uintptr_t from = std::max(begin, mapping.begin);
        const std::uintptr_t to = std::min(end, mapping.end);
        if (from >= to) {
            continue;
        }
        const int error = file == nullptr ? persist_cache_lines(from, to) : persist_pages(*file, from, to);
        if (error != 0) {
            return Failure{error, &mapping};
        }
    }
    return std::nullopt;
}

base::Result<void> Region::persist(const void *address, std::size_t length) {
    Portion portion;
    for (;;) {
        const auto done = persist_portion(address, length, portion);
        if (!done) {
            return base::Failure{done.error()};
        }
        if (*done == length) {
            return {};
        }
        address = static_cast<const std::byte *>(address) + *done;
        length -= *done;
    }
}

base::Result<std::size_t> Region::persist_portion(const void *address, std::size_t length, Portion &portion) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    if (begin < begin_ || begin > end_ || length > end_ - begin) {
        return base::failure(EINVAL);
    }
    const std::size_t bytes = portion.of(begin, length);
    if (failed_.load(std::memory_order_relaxed) == 0 && !closed_.load(std::memory_order_acquire)) {
        const auto started = bytes < length ? base::Clock::now() : base::Clock::time_point{};
        const auto failure = sync(begin, begin + bytes);
        if (bytes < length) {
            portion.took(base::Clock::now() - started);
        }
        // If the region was closed meanwhile, other data may be mapped there now, and only close() knows the
        // result.
        if (failure && !closed_.load(std::memory_order_acquire)) {
            failed_.store(failure->error, std::memory_order_relaxed);
            BASE_LOG(Error, "%zu bytes at %p are not durable: %s; the mapping %s", bytes, address,
                     strerrordesc_np(failure->error), failure->mapping->text.c_str());
        }
    }
    // Relaxed is enough: the number publishes nothing else, and closed_ publishes that of close().
    const int failed = failed_.load(std::memory_order_relaxed);
    if (failed != 0) {
        return base::failure(failed);
    }
    return bytes;
}

void Region::close() {
    static_cast<void>(persist(reinterpret_cast<const void *>(begin_), end_ - begin_));
    closed_.store(true, std::memory_order_release);
}

bool Region::closed_durable() const {
    return closed_.load(std::memory_order_acquire) && failed_.load(std::memory_order_relaxed) == 0;
}

}  // namespace persist
