// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/invalidated_keys: the keys that the peer of one connection has invalidated (send with
// invalidate, RFC 5040 section 5.3). They are invalid for that connection only, so that no peer takes memory
// away from another. Hardware invalidates no ordinary regions; its memory windows are bound to one queue
// pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "soft/memory/memory.hpp"

namespace soft {

// It is not thread-safe: its queue pair locks.
class InvalidatedKeys {
public:
    [[nodiscard]] bool empty() const { return entries_.empty(); }
    [[nodiscard]] std::size_t size() const { return entries_.size(); }
    [[nodiscard]] bool contains(const Asker &peer, std::uint32_t key) const;
    // Returns false, and changes nothing, when the peer cannot invalidate the key: it was invalidated before,
    // or no region of the protection domain that peers have a right to has it.
    [[nodiscard]] bool add(const Asker &peer, std::uint32_t key);

private:
    struct Entry {
        std::uint32_t key;
        std::uint64_t registration;  // of the region that had the key then
    };

    // The entries are sorted by key. Entries of regions that are gone are dropped before the vector grows, so
    // there are at most twice as many as regions.
    std::vector<Entry> entries_;
};

}  // namespace soft
