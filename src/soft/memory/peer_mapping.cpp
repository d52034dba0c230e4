// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/peer_mapping: see the header.
#include "soft/memory/peer_mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "persist/guard.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

std::atomic<std::size_t> mappings{0};
std::atomic<std::uint64_t> mapped_bytes{0};

void give_back(std::uint64_t bytes) {
    mappings.fetch_sub(1, std::memory_order_relaxed);
    mapped_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

// Reserves a mapping of so many bytes. Returns false at the limit.
bool take(std::uint64_t bytes) {
    if (bytes > limits::most_peer_bytes) {
        return false;
    }
    const std::size_t count = mappings.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t sum = mapped_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (count >= limits::most_peer_mappings || sum > limits::most_peer_bytes - bytes) {
        give_back(bytes);
        return false;
    }
    return true;
}

// Returns how far the memory begins behind the beginning of a page.
std::size_t behind_page(std::uintptr_t place) {
    return place % static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

PeerMapping::PeerMapping(const PeerMemory &memory) {
    if (!take(memory.bytes)) {
        return;
    }
    auto *const page = static_cast<std::byte *>(map_object_of(memory));
    if (page == nullptr) {
        give_back(memory.bytes);
        return;
    }
    persist::install_guard();  // the peer may truncate the file at any time
    begin_ = page + behind_page(memory.place);
    bytes_ = memory.bytes;
    // A child of fork(2) would keep the file, and a dump of this process would have the peer's bytes.
    const std::size_t whole = bytes_ + behind_page(memory.place);
    (void)madvise(page, whole, MADV_DONTFORK);
    (void)madvise(page, whole, MADV_DONTDUMP);
}

PeerMapping::~PeerMapping() {
    if (begin_ != nullptr && !inherited()) {
        const std::size_t behind = behind_page(reinterpret_cast<std::uintptr_t>(begin_));
        munmap(begin_ - behind, bytes_ + behind);
        give_back(bytes_);
    }
}

}  // namespace soft
