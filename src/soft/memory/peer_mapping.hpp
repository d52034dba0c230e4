// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/peer_mapping: this process's own mapping of an object that a peer on this host has mapped, so
// that both access the same memory. A process searches for a limited number of objects at once, found or not,
// so that 10,000 connections do not make 10,000 searches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fork.hpp"
#include "persist/region.hpp"
#include "soft/memory/mapped_object.hpp"

namespace soft {

// A child of fork(2) has none of its parent's mappings. It does not change, and any thread may use it.
class PeerMapping : private base::Inheritable {
public:
    // Maps the memory, as map_object_of() does. Returns null when that is not possible, or the process has
    // made as many of these as it may.
    [[nodiscard]] static std::shared_ptr<const PeerMapping> of(const PeerMemory &memory);
    explicit PeerMapping(const PeerMemory &memory);
    PeerMapping(const PeerMapping &) = delete;
    PeerMapping &operator=(const PeerMapping &) = delete;
    ~PeerMapping();

    // Returns the place of a byte of the memory.
    [[nodiscard]] std::byte *at(std::uint64_t from_begin) const { return begin_ + from_begin; }
    // Returns what makes the memory durable; null when this process cannot do that, or need not.
    [[nodiscard]] persist::Region *durable() const { return durable_.get(); }

private:
    bool has_searched_;
    std::byte *begin_ = nullptr;
    std::uint64_t bytes_ = 0;
    std::unique_ptr<persist::Region> durable_;
};

}  // namespace soft
