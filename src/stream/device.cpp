// SPDX-License-Identifier: BSD-3-Clause
// stream/device: the RDMA devices behind local addresses, each opened once a process.
#include "stream/device.hpp"

#include <map>

#include "base/address.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "stream/address.hpp"

namespace stream {

namespace {

constinit base::LastingMutex lock_of_devices;

// Never destroyed: connections may outlive main().
std::map<ibv_context *, Device> &devices() REQUIRES(lock_of_devices) {
    static auto &by_context = *new std::map<ibv_context *, Device>;
    return by_context;
}

// A forked child uses its parent's peers, which do not change.
const base::HeldWhileForking<lock_of_devices> devices_survive_forks{base::ForkLevel::Stream};

// Never destroyed: other threads may be in a call when main() returns.
base::InterfaceTable &table() {
    static auto *const chosen = new base::InterfaceTable;
    return *chosen;
}

// name is the device's, or nullptr for any of the kind.
bool may_serve(const sockaddr_storage &local, rpma_device_kind kind, const char *name) {
    return table().admits(reinterpret_cast<const sockaddr &>(local),
                          kind == RPMA_DEVICE_SOFT ? "soft" : "kernel", name);
}

// Returns nullptr where no device of this kind serves the address.
base::Result<const Device *> find(const sockaddr_storage &local, rpma_device_kind kind) {
    const auto address = base::without_mapping(local);
    const auto host = host_of(address);
    if (!host) {
        return std::unexpected{host.error()};
    }
    if (!may_serve(address, kind, nullptr)) {
        return nullptr;
    }
    ibv_context *context = nullptr;
    switch (rpma_utils_get_local_ibv_context(host->c_str(), kind, &context)) {
        case 0:
            if (!may_serve(address, kind, context->device->name)) {
                BASE_LOG(Notice, "%s does not serve %s: the table of devices gives its interface another",
                         context->device->name, host->c_str());
                return nullptr;
            }
            return Device::of(context, kind);
        case RPMA_E_NOSUPP:
            return nullptr;
        default:
            return base::last_failure();
    }
}

sockaddr_storage loopback(sockaddr_storage wildcard) {
    if (wildcard.ss_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6 &>(wildcard).sin6_addr = in6addr_loopback;
    } else {
        reinterpret_cast<sockaddr_in &>(wildcard).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    return wildcard;
}

}  // namespace

Device::Device(ibv_context *context, Peer peer, bool of_kernel)
    : peer_{std::move(peer)},
      name_{context->device->name},
      is_iwarp_{context->device->transport_type == IBV_TRANSPORT_IWARP},
      is_of_kernel_{of_kernel} {
    if (rpma_peer_get_limits(peer_.get(), &limits_) != 0) {
        // Making a queue fails on this device too, and its error says why.
        limits_ = {};
    }
}

void Device::choose_by(const base::InterfaceTable &chosen) {
    table() = chosen;
}

base::Result<const Device *> Device::soft_at(const sockaddr_storage &local) {
    auto device = find(base::is_wildcard(local) ? loopback(local) : local, RPMA_DEVICE_SOFT);
    return device && *device == nullptr ? base::failure(EADDRNOTAVAIL) : device;
}

base::Result<const Device *> Device::of_kernel_at(const sockaddr_storage &local) {
    return find(local, RPMA_DEVICE_KERNEL);
}

bool Device::soft_may_serve(int family) {
    ibv_context *context = nullptr;
    return rpma_utils_get_local_ibv_context(family == AF_INET6 ? "::1" : "127.0.0.1", RPMA_DEVICE_SOFT,
                                            &context) == 0;
}

base::Result<const Device *> Device::of(ibv_context *context, rpma_device_kind kind) {
    const base::Lock lock{lock_of_devices};
    if (const auto known = devices().find(context); known != devices().end()) {
        return &known->second;
    }
    auto peer = made<Peer>(rpma_peer_new, context);
    if (!peer) {
        return std::unexpected{peer.error()};
    }
    return &devices()
                .try_emplace(context, context, std::move(*peer), kind == RPMA_DEVICE_KERNEL)
                .first->second;
}

}  // namespace stream
