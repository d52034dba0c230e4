// SPDX-License-Identifier: BSD-3-Clause
// carry/links: a table of addresses, each at the first free place from the one that its address gives.
#include "carry/links.hpp"

#include <sys/mman.h>

#include <cstdint>

namespace carry::links {

constinit std::array<std::atomic<Link *>, most> all{};

namespace {

// Replaces `before` by `after` once. Returns whether it was there.
bool replace(const Link *link, Link *before, Link *after) {
    constexpr unsigned page_bits = 12;
    const std::size_t first = reinterpret_cast<std::uintptr_t>(link) >> page_bits;
    for (std::size_t i = 0; i < most; ++i) {
        if (Link *expected = before; all[(first + i) % most].compare_exchange_strong(expected, after)) {
            return true;
        }
    }
    return false;
}

}  // namespace

Link *map(int file) {
    void *const memory = mmap(nullptr, sizeof(Link), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    auto *const link = static_cast<Link *>(memory);
    if (!replace(link, nullptr, link)) {
        (void)munmap(memory, sizeof(Link));
        return nullptr;
    }
    return link;
}

void unmap(const Link *link) {
    auto *const mapped = const_cast<Link *>(link);
    if (link != nullptr && replace(link, mapped, nullptr)) {
        (void)munmap(mapped, sizeof(Link));
    }
}

}  // namespace carry::links
