// SPDX-License-Identifier: BSD-3-Clause
// librpma/peer: a protection domain on one device.
#pragma once

#include "librpma/api.hpp"
#include "verbs/owned.hpp"

namespace librpma {

// Asks a device what it has; RPMA_E_PROVIDER, logged.
[[nodiscard]] Result<ibv_device_attr_ex> query_device(const verbs::Provider &provider, ibv_context *context);

// These abilities decide how a peer works.
struct DeviceAbilities {
    // Writes and reads of memory that is not pinned, over a reliable connection.
    bool on_demand_paging = false;
    unsigned native_operations = 0;
};
[[nodiscard]] DeviceAbilities abilities_of(const verbs::Provider &provider,
                                           const ibv_device_attr_ex &attributes);

// Memory that is registered, what it can be used for, and whether its descriptor is to say that it takes
// native flush and atomic write.
struct RegisteredMemory {
    verbs::MemoryRegion region;
    int usage = 0;
    bool takes_native = false;
};

// After a queue could not be made: logs how large the device's queues can be, and what sets their sizes.
void log_queue_limits(const verbs::Provider &provider, ibv_context *context);

}  // namespace librpma

struct rpma_peer final {
public:
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_peer>> create(ibv_context *context);
    rpma_peer(const verbs::Provider &provider, verbs::ProtectionDomain pd, librpma::DeviceAbilities abilities)
        : provider_{provider}, pd_{std::move(pd)}, abilities_{abilities} {}

    [[nodiscard]] const verbs::Provider &provider() const { return provider_; }
    [[nodiscard]] ibv_pd *pd() const { return pd_.get(); }
    // The native_ operations of this end.
    [[nodiscard]] unsigned native_operations() const { return abilities_.native_operations; }

    // A region with the access that the usage needs, pinned, or on demand where pinning is not possible;
    // without native flush where the device refuses that of this memory. Memory that the soft device cannot
    // make durable is for flush to visibility where the usage asks for persistence. only_for: the queue pair
    // whose peer alone reaches it, or nullptr.
    [[nodiscard]] librpma::Result<librpma::RegisteredMemory> register_memory(
        void *address, std::size_t size, int usage, ibv_qp *only_for = nullptr) const;
    [[nodiscard]] int close();

private:
    [[nodiscard]] int access_for(int usage, unsigned native_operations) const;

    const verbs::Provider &provider_;
    verbs::ProtectionDomain pd_;
    librpma::DeviceAbilities abilities_;
};
