// SPDX-License-Identifier: BSD-3-Clause
// persist/region: cache lines through libpmem2, pages through msync.
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

// libpmem2's function that writes back cache lines; null when libpmem2 fails. It depends on the granularity
// of a map, not on its addresses, so one map, of a page of our own, gives it for all memory. A map of each
// region could not: libpmem2 refuses memory that the program itself, or a region that overlaps this one, has
// mapped through it.
pmem2_persist_fn cache_line_function() {
    static const pmem2_persist_fn function = []() -> pmem2_persist_fn {
        const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        void *const page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pmem2_source *source = nullptr;
        // Never deleted: the function is good as long as the library.
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

// Not instrumented: others store to these bytes at the same time, and what is read does not matter.
__attribute__((no_sanitize("thread"), no_sanitize("address"), noinline)) void touch(std::uintptr_t address) {
    static_cast<void>(*reinterpret_cast<const volatile char *>(address));
}

// Whether the byte is still there. Asked of the last byte of a range, as that is what a truncation takes
// first: msync says nothing of it, nor do emulators of the instruction that flushes.
[[nodiscard]] bool still_there(std::uintptr_t address) {
    return guarded(reinterpret_cast<const void *>(address), 1, [address] { touch(address); });
}

int persist_cache_lines(std::uintptr_t begin, std::uintptr_t end) {
    const pmem2_persist_fn function = cache_line_function();
    const auto *const address = reinterpret_cast<const void *>(begin);
    // The first line that is written back may begin before the first byte.
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
        if (mapping.durability == Durability::Volatile) {
            // The program may do without.
            BASE_LOG(Warning, "memory at %p, %zu bytes, cannot be made durable: %s", address, length,
                     mapping.text.c_str());
            return base::failure(EOPNOTSUPP);
        }
        if (mapping.durability == Durability::CacheLines && cache_line_function() == nullptr) {
            return base::failure(EOPNOTSUPP);
        }
        std::shared_ptr<File> file;
        if (mapping.durability == Durability::PageCache) {
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

// The first failure; none when all of the range is durable.
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
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    if (begin < begin_ || begin > end_ || length > end_ - begin) {
        return base::failure(EINVAL);
    }
    if (failed_.load(std::memory_order_relaxed) == 0 && !closed_.load(std::memory_order_acquire)) {
        const auto failure = sync(begin, begin + length);
        // If the region was closed meanwhile, the memory may be another's by now, and close() knows more.
        if (failure && !closed_.load(std::memory_order_acquire)) {
            failed_.store(failure->error, std::memory_order_relaxed);
            BASE_LOG(Error, "%zu bytes at %p are not durable: %s; the mapping %s", length, address,
                     strerrordesc_np(failure->error), failure->mapping->text.c_str());
        }
    }
    // Relaxed: a number, with which nothing else is published; that of close() is published by closed_.
    const int failed = failed_.load(std::memory_order_relaxed);
    return failed == 0 ? base::Result<void>{} : base::failure(failed);
}

void Region::close() {
    static_cast<void>(persist(reinterpret_cast<const void *>(begin_), end_ - begin_));
    closed_.store(true, std::memory_order_release);
}

bool Region::closed_durable() const {
    return closed_.load(std::memory_order_acquire) && failed_.load(std::memory_order_relaxed) == 0;
}

}  // namespace persist
