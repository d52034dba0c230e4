// SPDX-License-Identifier: BSD-3-Clause
// stream/listener: see the header.
#include "stream/listener.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "base/address.hpp"
#include "stream/address.hpp"

namespace stream {

namespace {

using Addresses = std::unique_ptr<ifaddrs, decltype([](ifaddrs *list) { freeifaddrs(list); })>;

// Returns the address of an interface with the port of a wildcard address that covers it, or one of no family
// if the wildcard does not.
sockaddr_storage covered(const sockaddr_storage &wildcard, const ifaddrs &entry, bool v6_only) {
    sockaddr_storage local{};
    if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) {
        return local;
    }
    const int family = entry.ifa_addr->sa_family;
    if (family == AF_INET && (wildcard.ss_family == AF_INET || !v6_only)) {
        std::memcpy(&local, entry.ifa_addr, sizeof(sockaddr_in));
    } else if (family == AF_INET6 && wildcard.ss_family == AF_INET6) {
        std::memcpy(&local, entry.ifa_addr, sizeof(sockaddr_in6));
    } else {
        return local;
    }
    base::set_port(local, base::port_of(wildcard));
    return local;
}

std::vector<sockaddr_storage> addresses_of(const sockaddr_storage &local, bool v6_only) {
    if (!base::is_wildcard(local)) {
        return {base::without_mapping(local)};
    }
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) {
        return {};
    }
    const Addresses owner{list};
    std::vector<sockaddr_storage> addresses;
    for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (const auto address = covered(local, *entry, v6_only); address.ss_family != AF_UNSPEC) {
            addresses.push_back(address);
        }
    }
    return addresses;
}

}  // namespace

base::Result<std::unique_ptr<Listener>> Listener::at(const sockaddr_storage &local, const Options &options) {
    std::unique_ptr<Listener> listener;
    for (const sockaddr_storage &address : addresses_of(local, options.v6_only)) {
        const auto device = Device::of_kernel_at(address);
        if (!device) {
            return std::unexpected{device.error()};
        }
        if (*device == nullptr ||
            (base::is_wildcard(local) && (*device)->is_iwarp() && Device::soft_may_serve(local.ss_family))) {
            continue;
        }
        if (listener == nullptr) {
            auto events = made_events((*device)->peer());
            if (!events) {
                return std::unexpected{events.error()};
            }
            listener = std::make_unique<Listener>(std::move(*events), RPMA_DEVICE_KERNEL);
        }
        if (auto added = listener->add(**device, address, options); !added) {
            return std::unexpected{added.error()};
        }
    }
    return listener;
}

base::Result<std::unique_ptr<Listener>> Listener::on_soft_at(const sockaddr_storage &local,
                                                             const Options &options) {
    const auto device = Device::soft_at(local);
    if (!device) {
        return std::unexpected{device.error()};
    }
    auto events = made_events((*device)->peer());
    if (!events) {
        return std::unexpected{events.error()};
    }
    auto listener = std::make_unique<Listener>(std::move(*events), RPMA_DEVICE_SOFT);
    if (auto added = listener->add(**device, base::without_mapping(local), options); !added) {
        return std::unexpected{added.error()};
    }
    return listener;
}

base::Result<void> Listener::add(const Device &device, const sockaddr_storage &local,
                                 const Options &options) {
    const auto host = host_of(local);
    auto configuration = made<EndpointConfiguration>(rpma_ep_cfg_new);
    if (!host || !configuration) {
        return base::failure(host ? configuration.error().number : host.error().number);
    }
    rpma_ep_cfg *const cfg = configuration->get();
    const bool v6_only = local.ss_family == AF_INET6 && (options.v6_only || !base::is_wildcard(local));
    int result = rpma_ep_cfg_set_backlog(cfg, options.backlog);
    result = result != 0 ? result : rpma_ep_cfg_set_reuseaddr(cfg, options.reuse);
    result = result != 0 ? result : rpma_ep_cfg_set_v6only(cfg, v6_only);
    result = result != 0 ? result : rpma_ep_cfg_set_events(cfg, events_.get());
    if (result != 0) {
        return failure_of(result);
    }
    auto endpoint = made<Endpoint>(rpma_ep_listen_cfg, device.peer(), host->c_str(), port_text(local).c_str(),
                                   static_cast<const rpma_ep_cfg *>(cfg));
    if (!endpoint) {
        // The address is this machine's, and served by the device: what is left is that it is in use.
        return base::failure(endpoint.error().number == ENOBUFS ? EADDRINUSE : endpoint.error().number);
    }
    endpoints_.push_back(std::move(*endpoint));
    return {};
}

base::Result<sockaddr_storage> Listener::name() const {
    sockaddr_storage name{};
    const bool known = !endpoints_.empty() && rpma_ep_get_local_addr(endpoints_.front().get(), &name) == 0;
    return known ? base::Result<sockaddr_storage>{name} : base::failure(EINVAL);
}

int Listener::fd() const {
    int fd = -1;
    (void)rpma_events_get_fd(events_.get(), &fd);
    return fd;
}

base::Result<Asked> Listener::next() {
    rpma_event event{};
    while (true) {
        switch (rpma_events_take(events_.get(), &event)) {
            case 0:
                if (event.type == RPMA_EVENT_EP) {
                    if (auto asked = take(event.ep); asked) {
                        return asked;
                    }
                }
                break;
            case RPMA_E_NO_EVENT:
                return base::failure(EAGAIN);
            case RPMA_E_NOMEM:
                return base::failure(ENOMEM);
            default:
                return base::failure(EAGAIN);
        }
    }
}

base::Result<Asked> Listener::take(rpma_ep *endpoint) const {
    auto request = made<Request>(rpma_ep_next_bare_req, endpoint);
    if (!request) {
        return std::unexpected{request.error()};
    }
    Asked asked{.request = std::move(*request), .device = nullptr, .peer = {}};
    ibv_context *context = nullptr;
    int result = rpma_conn_req_get_ibv_context(asked.request.get(), &context);
    result = result != 0 ? result : rpma_conn_req_get_peer_addr(asked.request.get(), &asked.peer);
    if (result != 0) {
        return failure_of(result);
    }
    const auto device = Device::of(context, kind_);
    if (!device) {
        return std::unexpected{device.error()};
    }
    asked.device = *device;
    return asked;
}

}  // namespace stream
