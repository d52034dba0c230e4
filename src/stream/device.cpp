// SPDX-License-Identifier: BSD-3-Clause
// stream/device: the RDMA device behind a local address, opened once a process.
#include "stream/device.hpp"

#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>

namespace stream {

namespace {

struct Devices {
    std::mutex mutex;
    std::map<ibv_context *, Device> by_context;
};

// Never destroyed: connections may outlive main().
Devices &devices() {
    static auto *const all = new Devices;
    return *all;
}

// An IPv4 address that an IPv6 socket has, as the IPv4 address that the device knows.
sockaddr_storage without_mapping(const sockaddr_storage &address) {
    const auto &v6 = reinterpret_cast<const sockaddr_in6 &>(address);
    if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
        return address;
    }
    sockaddr_storage plain{};
    auto &v4 = reinterpret_cast<sockaddr_in &>(plain);
    v4.sin_family = AF_INET;
    v4.sin_port = v6.sin6_port;
    std::memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
    return plain;
}

}  // namespace

Device::Device(ibv_context *context, Peer peer)
    : peer_{std::move(peer)}, is_iwarp_{context->device->transport_type == IBV_TRANSPORT_IWARP} {
    if (rpma_peer_get_limits(peer_.get(), &limits_) != 0) {
        // It makes no queue either, which says why.
        limits_ = {};
    }
}

base::Result<const Device *> Device::at(const sockaddr_storage &local) {
    std::array<char, NI_MAXHOST> host{};
    const sockaddr_storage address = without_mapping(local);
    const socklen_t length = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (getnameinfo(reinterpret_cast<const sockaddr *>(&address), length, host.data(), host.size(), nullptr,
                    0, NI_NUMERICHOST) != 0) {
        return base::failure(EAFNOSUPPORT);
    }
    ibv_context *context = nullptr;
    if (rpma_utils_get_ibv_context(host.data(), RPMA_UTIL_IBV_CONTEXT_LOCAL, &context) != 0 ||
        context == nullptr) {
        return base::failure(EADDRNOTAVAIL);
    }
    Devices &all = devices();
    const std::scoped_lock lock{all.mutex};
    if (const auto known = all.by_context.find(context); known != all.by_context.end()) {
        return &known->second;
    }
    auto peer = made<Peer>(rpma_peer_new, context);
    if (!peer) {
        return std::unexpected{peer.error()};
    }
    return &all.by_context.try_emplace(context, context, std::move(*peer)).first->second;
}

}  // namespace stream
