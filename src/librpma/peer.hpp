// SPDX-License-Identifier: BSD-3-Clause
// librpma/peer: a protection domain on one device.
#pragma once

#include "librpma/api.hpp"
#include "verbs/owned.hpp"

namespace librpma {

// Asks a device for its attributes. Fails with RPMA_E_PROVIDER, and logs it.
[[nodiscard]] Result<ibv_device_attr_ex> query_device(const verbs::Provider &provider, ibv_context *context);

// The abilities of a device that decide how a peer works.
struct DeviceAbilities {
    // Writes and reads of memory that is not pinned, over a reliable connection.
    bool on_demand_paging = false;
    unsigned native_operations = 0;
};
[[nodiscard]] DeviceAbilities abilities_of(const verbs::Provider &provider,
                                           const ibv_device_attr_ex &attributes);

// Registered memory, its usage, and whether its descriptor says that it takes native flush and atomic write.
struct RegisteredMemory {
    verbs::MemoryRegion region;
    int usage = 0;
    bool takes_native = false;
};

// Is called when a queue could not be made. Logs how large the device's queues can be, and which functions
// set their sizes.
void log_queue_limits(const verbs::Provider &provider, ibv_context *context);

}  // namespace librpma

struct rpma_peer final {
public:
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_peer>> create(ibv_context *context);
    rpma_peer(const verbs::Provider &provider, verbs::ProtectionDomain pd, librpma::DeviceAbilities abilities)
        : provider_{provider}, pd_{std::move(pd)}, abilities_{abilities} {}

    [[nodiscard]] const verbs::Provider &provider() const { return provider_; }
    [[nodiscard]] ibv_pd *pd() const { return pd_.get(); }
    // Returns the native_ operations of this end.
    [[nodiscard]] unsigned native_operations() const { return abilities_.native_operations; }

    // Registers memory with the access that the usage needs, pinned, or on demand when pinning is not
    // possible. It is registered without native flush when the device refuses that for this memory. When the
    // usage asks for persistence and the soft device cannot make the memory durable, it is registered for
    // flush to visibility. Only the peer of the queue pair `only_for` reaches it, unless that is nullptr.
    [[nodiscard]] librpma::Result<librpma::RegisteredMemory> register_memory(
        void *address, std::size_t size, int usage, ibv_qp *only_for = nullptr) const;
    [[nodiscard]] int close();

private:
    [[nodiscard]] int access_for(int usage, unsigned native_operations) const;

    const verbs::Provider &provider_;
    verbs::ProtectionDomain pd_;
    librpma::DeviceAbilities abilities_;
};
