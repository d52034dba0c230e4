// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/peer_mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <utility>

#include "persist/guard.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

std::atomic<std::size_t> searches{0};
std::atomic<std::uint64_t> mapped_bytes{0};

// Each takes a share of a limit. Returns false, and takes nothing, beyond the limit.
bool take_search() {
    if (searches.fetch_add(1, std::memory_order_relaxed) < limits::in_force().most_peer_searches) {
        return true;
    }
    searches.fetch_sub(1, std::memory_order_relaxed);
    return false;
}

bool take_bytes(std::uint64_t bytes) {
    if (bytes > limits::most_peer_bytes) {
        return false;
    }
    if (mapped_bytes.fetch_add(bytes, std::memory_order_relaxed) <= limits::most_peer_bytes - bytes) {
        return true;
    }
    mapped_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
}

// Returns how far the memory begins behind the beginning of a page.
std::size_t behind_page(std::uintptr_t place) {
    return place % static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
}

// Returns null when the memory cannot be made durable here, or there is no memory for that.
std::unique_ptr<persist::Region> durable_region(std::byte *begin, std::uint64_t bytes) {
    try {
        auto opened = persist::Region::open(begin, bytes);
        return opened ? std::move(*opened) : nullptr;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

}  // namespace

std::shared_ptr<const PeerMapping> PeerMapping::of(const PeerMemory &memory) {
    try {
        auto made = std::make_shared<const PeerMapping>(memory);
        return made->begin_ != nullptr ? std::move(made) : nullptr;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

PeerMapping::PeerMapping(const PeerMemory &memory) : has_searched_{take_search()} {
    if (!has_searched_ || !take_bytes(memory.bytes)) {
        return;
    }
    auto *const page = static_cast<std::byte *>(map_object_of(memory));
    if (page == nullptr) {
        mapped_bytes.fetch_sub(memory.bytes, std::memory_order_relaxed);
        return;
    }
    persist::install_guard();  // the peer may truncate the file at any time
    begin_ = page + behind_page(memory.place);
    bytes_ = memory.bytes;
    // A child of fork(2) would keep the file, and a dump of this process would have the peer's bytes.
    const std::size_t whole = bytes_ + behind_page(memory.place);
    (void)madvise(page, whole, MADV_DONTFORK);
    (void)madvise(page, whole, MADV_DONTDUMP);
    if (memory.durable) {
        durable_ = durable_region(begin_, bytes_);
    }
}

PeerMapping::~PeerMapping() {
    if (inherited()) {
        return;
    }
    if (has_searched_) {
        searches.fetch_sub(1, std::memory_order_relaxed);
    }
    if (begin_ != nullptr) {
        const std::size_t behind = behind_page(reinterpret_cast<std::uintptr_t>(begin_));
        munmap(begin_ - behind, bytes_ + behind);
        mapped_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
    }
}

}  // namespace soft
