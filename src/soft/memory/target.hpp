// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/target: local memory that payload is received into.
#pragma once

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>

#include "soft/memory/memory.hpp"

namespace soft {

// Pieces of registered memory, which stays registered as long as this lives.
struct Target {
    static constexpr std::size_t max_pieces = 6;  // limits::max_sge pieces

    std::array<iovec, max_pieces + 1> pieces;  // one more, for the bytes after the payload
    std::array<Pin, max_pieces> pins;
    std::size_t count = 0;
    std::size_t bytes = 0;
    const MemoryRegion *durable = nullptr;  // a write's region that can be flushed persistently

    // Aims at the one piece of a write.
    void aim_at(Pin pin, std::uint64_t address, std::size_t size) {
        durable = pin.region().durable != nullptr ? &pin.region() : nullptr;
        pieces[0] = {.iov_base = pin.region().at(address), .iov_len = size};
        pins[0] = std::move(pin);
        count = 1;
        bytes = size;
    }
    // Aims at up to most_bytes of a scatter list in memory of the domain, from `offset` on. Returns
    // IBV_WC_LOC_PROT_ERR (logged) when a piece is not registered for writing, and IBV_WC_LOC_LEN_ERR when
    // the list ends before `offset`.
    [[nodiscard]] ibv_wc_status aim_at(const ibv_pd *domain, std::span<const ibv_sge> sges,
                                       std::size_t offset, std::size_t most_bytes);

    // Copies bytes into all pieces. Returns the piece whose memory is not mapped any more, or `count`.
    [[nodiscard]] std::size_t fill(const std::byte *from) const;
};

}  // namespace soft
