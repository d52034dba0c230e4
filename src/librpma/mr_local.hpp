// SPDX-License-Identifier: BSD-3-Clause
// librpma/mr_local: registered memory of this process.
#pragma once

#include <bit>
#include <cstdint>

#include "librpma/mr_descriptor.hpp"
#include "librpma/pages.hpp"
#include "librpma/peer.hpp"

struct rpma_mr_local final {
public:
    // `only_for` has the meaning of rpma_peer::register_memory.
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_mr_local>> create(const rpma_peer &peer,
                                                                                librpma::Pages pages,
                                                                                void *address,
                                                                                std::size_t size, int usage,
                                                                                ibv_qp *only_for = nullptr);
    // `pages` is memory that belongs to the region.
    rpma_mr_local(const verbs::Provider &provider, librpma::Pages pages, librpma::RegisteredMemory memory)
        : provider_{provider},
          pages_{std::move(pages)},
          address_{std::bit_cast<std::uintptr_t>(memory.region->addr)},
          lkey_{memory.region->lkey},
          usage_{memory.usage},
          takes_native_{memory.takes_native},
          region_{std::move(memory.region)} {}

    [[nodiscard]] const verbs::Provider &provider() const { return provider_; }
    [[nodiscard]] const ibv_mr &region() const { return *region_.get(); }
    [[nodiscard]] librpma::MrDescriptor descriptor() const;
    [[nodiscard]] std::size_t size() const { return region_->length; }

    // Returns a part of the region for a work request. It is not checked, and only the lower 32 bits of the
    // length count.
    [[nodiscard]] ibv_sge part(std::size_t offset, std::size_t length) const {
        return {.addr = address_ + offset, .length = static_cast<std::uint32_t>(length), .lkey = lkey_};
    }
    // Ends the registration, if that is possible. Returns true when a peer may still access the memory; then
    // the object stays.
    [[nodiscard]] bool is_accessed();
    [[nodiscard]] int close();

private:
    const verbs::Provider &provider_;
    librpma::Pages pages_;  // the pages outlive the registration
    // A copy of the region's address and key, for every post.
    std::uint64_t address_;
    std::uint32_t lkey_;
    int usage_;
    bool takes_native_;
    verbs::MemoryRegion region_;
};
