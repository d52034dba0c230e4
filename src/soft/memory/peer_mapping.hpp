// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/peer_mapping: this process's own mapping of an object that a peer on this host has mapped, so
// that both access the same memory. A process searches for a limited number of objects at once, found or not,
// so that 10,000 connections do not make 10,000 searches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/fork.hpp"
#include "soft/memory/mapped_object.hpp"

namespace soft {

// A child of fork(2) has none of its parent's mappings. It is not thread-safe: its owner locks.
class PeerMapping : private base::Inheritable {
public:
    PeerMapping() = default;
    // Maps the memory, as map_object_of() does; is empty when that is not possible, or the process has made
    // as many of these as it may.
    explicit PeerMapping(const PeerMemory &memory);
    PeerMapping(PeerMapping &&other) noexcept { swap(other); }
    PeerMapping &operator=(PeerMapping &&other) noexcept {
        PeerMapping mine{std::move(other)};
        swap(mine);
        return *this;
    }
    PeerMapping(const PeerMapping &) = delete;
    PeerMapping &operator=(const PeerMapping &) = delete;
    ~PeerMapping();

    explicit operator bool() const { return begin_ != nullptr; }
    // Returns the place of a byte of the memory.
    [[nodiscard]] std::byte *at(std::uint64_t from_begin) const { return begin_ + from_begin; }

private:
    void swap(PeerMapping &other) noexcept {
        std::swap(begin_, other.begin_);
        std::swap(bytes_, other.bytes_);
        std::swap(has_searched_, other.has_searched_);
    }

    bool has_searched_ = false;
    std::byte *begin_ = nullptr;
    std::uint64_t bytes_ = 0;
};

}  // namespace soft
