// SPDX-License-Identifier: BSD-3-Clause
// cli/peer: address to device to librpma peer.
#include "cli/peer.hpp"

#include <softrdma.h>

#include "cli/log.hpp"

namespace cli {

Outcome<DevicePeer> open_peer(const Address &address, rpma_util_ibv_context_type type) {
    const char *expected = type == RPMA_UTIL_IBV_CONTEXT_LOCAL ? "of this machine, served by" : "reached by";
    clear_log();
    ibv_context *context = nullptr;
    const int result = rpma_utils_get_ibv_context(address.host.c_str(), type, &context);
    if (result != 0 || context == nullptr) {  // a wildcard is bound to no device
        return failed("{}: expected an address {} an RDMA device (rpma devices){}", address.host, expected,
                      result != 0 ? reason_of(result) : "");
    }
    DevicePeer device;
    device.is_soft = softrdma_owns(context);
    device.name =
        device.is_soft ? softrdma_ibv_get_device_name(context->device) : ibv_get_device_name(context->device);
    rpma_peer *peer = nullptr;
    TRY(checked(rpma_peer_new(context, &peer), "{}: cannot use device {}", address.host, device.name));
    device.peer.reset(peer);
    return device;
}

Outcome<LocalRegion> register_memory(const DevicePeer &device, std::span<std::byte> memory, int usage) {
    rpma_mr_local *local = nullptr;
    TRY(checked(rpma_mr_reg(device.peer.get(), memory.data(), memory.size(), usage, &local),
                "cannot register {} bytes with {}", memory.size(), device.name));
    return LocalRegion{local};
}

}  // namespace cli
