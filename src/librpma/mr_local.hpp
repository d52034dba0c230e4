// SPDX-License-Identifier: BSD-3-Clause
// librpma/mr_local: registered memory of this process.
#pragma once

#include <bit>
#include <cstdint>

#include "librpma/peer.hpp"

struct rpma_mr_local final {
public:
    rpma_mr_local(const verbs::Provider &provider, verbs::MemoryRegion region, int usage)
        : provider_{provider}, region_{std::move(region)}, usage_{usage} {}

    [[nodiscard]] const verbs::Provider &provider() const { return provider_; }
    [[nodiscard]] const ibv_mr &region() const { return *region_.get(); }
    [[nodiscard]] int usage() const { return usage_; }
    [[nodiscard]] std::size_t size() const { return region_->length; }

    // A part of the region for a work request; not checked, and of the length only the lower 32 bits count.
    [[nodiscard]] ibv_sge part(std::size_t offset, std::size_t length) const {
        return {.addr = std::bit_cast<std::uintptr_t>(region_->addr) + offset,
                .length = static_cast<std::uint32_t>(length),
                .lkey = region_->lkey};
    }
    [[nodiscard]] int close();

private:
    const verbs::Provider &provider_;
    verbs::MemoryRegion region_;
    int usage_;
};
