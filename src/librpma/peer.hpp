// SPDX-License-Identifier: BSD-3-Clause
// librpma/peer: a protection domain on one device.
#pragma once

#include "librpma/api.hpp"
#include "verbs/owned.hpp"

struct rpma_peer final {
public:
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_peer>> create(ibv_context *context);
    rpma_peer(const verbs::Provider &provider, verbs::ProtectionDomain pd, bool odp_capable)
        : provider_{provider}, pd_{std::move(pd)}, odp_capable_{odp_capable} {}

    [[nodiscard]] const verbs::Provider &provider() const { return provider_; }
    [[nodiscard]] ibv_pd *pd() const { return pd_.get(); }

    // A region with the access that the usage needs, pinned, or on demand where pinning is not possible.
    [[nodiscard]] librpma::Result<verbs::MemoryRegion> register_memory(void *address, std::size_t size,
                                                                       int usage) const;
    [[nodiscard]] int close();

private:
    [[nodiscard]] int access_for(int usage) const;

    const verbs::Provider &provider_;
    verbs::ProtectionDomain pd_;
    bool odp_capable_;
};

namespace librpma {

// Whether the device takes writes and reads of memory that is not pinned, over a reliable connection.
[[nodiscard]] Result<bool> is_odp_capable(const verbs::Provider &provider, ibv_context *context);

}  // namespace librpma
