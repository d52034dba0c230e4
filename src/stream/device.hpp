// SPDX-License-Identifier: BSD-3-Clause
// stream/device: the RDMA devices behind local addresses, each opened once a process. RPMA_DEVICE says which
// kinds there are. Any thread may call the static functions; a device is kept until the process ends.
#pragma once

#include <sys/socket.h>

#include "base/interface_table.hpp"
#include "stream/owned.hpp"

namespace stream {

class Device {
public:
    // From now on the table says which device serves the addresses of its interfaces: "soft" and "kernel" are
    // the kinds, another word is a device's name. Other devices do not serve them then. No other thread asks
    // for a device meanwhile.
    static void choose_by(const base::InterfaceTable &chosen);
    // The soft device at an address of this machine; at a wildcard address, that of the loopback interface.
    // EADDRNOTAVAIL: it may not serve it.
    [[nodiscard]] static base::Result<const Device *> soft_at(const sockaddr_storage &local);
    // The kernel's device that serves an address of this machine; nullptr where there is none.
    [[nodiscard]] static base::Result<const Device *> of_kernel_at(const sockaddr_storage &local);
    // Returns whether RPMA_DEVICE lets the soft device serve this machine's addresses of a family.
    [[nodiscard]] static bool soft_may_serve(int family);
    // Returns the device of a context, which is of this kind.
    [[nodiscard]] static base::Result<const Device *> of(ibv_context *context, rpma_device_kind kind);

    Device(ibv_context *context, Peer peer, bool of_kernel);
    [[nodiscard]] rpma_peer *peer() const { return peer_.get(); }
    [[nodiscard]] const rpma_peer_limits &limits() const { return limits_; }
    [[nodiscard]] const char *name() const { return name_; }
    // Returns whether a word is a send of its own. On other devices it is a write's immediate data.
    [[nodiscard]] bool is_iwarp() const { return is_iwarp_; }
    [[nodiscard]] bool is_of_kernel() const { return is_of_kernel_; }

private:
    Peer peer_;
    const char *name_;
    rpma_peer_limits limits_{};
    bool is_iwarp_;
    bool is_of_kernel_;
};

}  // namespace stream
