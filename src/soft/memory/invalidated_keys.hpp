// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/invalidated_keys: what the peer of one connection has given back (send with invalidate, RFC
// 5040 section 5.3). It holds for that connection: hardware invalidates no ordinary regions, and the memory
// windows that it does are bound to one queue pair, so that no peer takes anything from another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "soft/memory/memory.hpp"

namespace soft {

// Not thread-safe: its queue pair locks.
class InvalidatedKeys {
public:
    [[nodiscard]] bool empty() const { return entries_.empty(); }
    [[nodiscard]] std::size_t size() const { return entries_.size(); }
    [[nodiscard]] bool contains(const Asker &peer, std::uint32_t key) const;
    // Returns false, and nothing is changed, when the key is not the peer's to give back: no region of the
    // protection domain has it that peers have a right to, or it was given back before.
    [[nodiscard]] bool add(const Asker &peer, std::uint32_t key);

private:
    struct Entry {
        std::uint32_t key;
        std::uint64_t registration;  // the region's that had the key then
    };

    // Sorted by key. Those of regions that are gone are dropped before more memory is taken, so that there
    // are at most twice as many as regions.
    std::vector<Entry> entries_;
};

}  // namespace soft
