// SPDX-License-Identifier: BSD-3-Clause
// carry/links: a table of addresses, each at the first free place from the one that its address gives.
#include "carry/links.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>

namespace carry::links {

constinit std::array<Mapped, most> all{};

namespace {

constinit std::atomic<bool> all_stay{false};

// Returns the first place for this link that has `wanted`; nullptr without one.
Mapped *first_with(const Link *wanted, const void *link) {
    constexpr unsigned page_bits = 12;
    const std::size_t begin = reinterpret_cast<std::uintptr_t>(link) >> page_bits;
    for (std::size_t i = 0; i < most; ++i) {
        if (Mapped &one = all[(begin + i) % most]; one.link == wanted) {
            return &one;
        }
    }
    return nullptr;
}

}  // namespace

Link *map(int file) {
    void *const memory = mmap(nullptr, sizeof(Link), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    Mapped *const one = first_with(nullptr, memory);
    if (one == nullptr) {
        (void)munmap(memory, sizeof(Link));
        return nullptr;
    }
    return one->link = static_cast<Link *>(memory);
}

void unmap(const Link *link) {
    Mapped *const one = find(link);
    if (one == nullptr) {
        return;
    }
    one->closed_place = 0;
    auto *mapped = const_cast<Link *>(link);
    if (one->link.compare_exchange_strong(mapped, nullptr) && !all_stay) {
        (void)munmap(mapped, sizeof(Link));
    }
}

void stay_mapped() {
    all_stay = true;
}

Mapped *find(const Link *link) {
    return link != nullptr ? first_with(link, link) : nullptr;
}

}  // namespace carry::links
