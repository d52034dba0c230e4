// SPDX-License-Identifier: BSD-3-Clause
// rstream/info: see the header.
#include "rstream/info.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <string_view>
#include <vector>

#include "base/address.hpp"
#include "stream/address.hpp"
#include "stream/settings.hpp"

namespace rstream {

namespace {

constexpr std::uint64_t capabilities = FI_MSG | FI_SEND | FI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM;
// A program that leaves these to the provider wants no other.
constexpr std::uint64_t message_order = FI_ORDER_SAS;

using Addresses = std::vector<sockaddr_storage>;

bool is_within(std::uint64_t wanted, std::uint64_t possible) {
    return (wanted & ~possible) == 0;
}

template <typename T>
bool is_one_of(T value, std::initializer_list<T> possible) {
    return std::ranges::find(possible, value) != possible.end();
}

bool suits(const fi_ep_attr &wanted) {
    return is_one_of(wanted.type, {FI_EP_UNSPEC, FI_EP_SOCK_STREAM}) &&
           is_one_of<std::uint32_t>(wanted.protocol, {FI_PROTO_UNSPEC, FI_PROTO_RSTREAM, FI_PROTO_IWARP}) &&
           wanted.protocol_version <= 1 && wanted.max_msg_size <= SSIZE_MAX && wanted.msg_prefix_size == 0 &&
           wanted.max_order_raw_size == 0 && wanted.max_order_war_size == 0 &&
           wanted.max_order_waw_size == 0 && wanted.tx_ctx_cnt <= 1 && wanted.rx_ctx_cnt <= 1 &&
           wanted.auth_key_size == 0;
}

// The attributes of either direction are judged here.
template <typename Attributes>
bool suits_direction(const Attributes &wanted) {
    return is_within(wanted.caps, capabilities) && wanted.op_flags == 0 &&
           is_within(wanted.msg_order, message_order) && wanted.comp_order == 0 &&
           wanted.size <= stream::most_messages && wanted.iov_limit <= most_parts;
}

bool suits(const fi_domain_attr &wanted) {
    return is_one_of(wanted.control_progress, {FI_PROGRESS_UNSPEC, FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO}) &&
           is_one_of(wanted.data_progress, {FI_PROGRESS_UNSPEC, FI_PROGRESS_MANUAL}) &&
           is_within(wanted.caps, FI_LOCAL_COMM | FI_REMOTE_COMM) && wanted.cq_data_size == 0 &&
           wanted.auth_key_size == 0;
}

// Returns whether the provider has what the program wants, whatever the addresses.
bool suits(const fi_info &wanted) {
    return is_within(wanted.caps, capabilities) &&
           is_one_of<std::uint32_t>(wanted.addr_format,
                                    {FI_FORMAT_UNSPEC, FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6}) &&
           (wanted.ep_attr == nullptr || suits(*wanted.ep_attr)) &&
           (wanted.tx_attr == nullptr ||
            (suits_direction(*wanted.tx_attr) && wanted.tx_attr->inject_size == 0)) &&
           (wanted.rx_attr == nullptr || suits_direction(*wanted.rx_attr)) &&
           (wanted.domain_attr == nullptr || suits(*wanted.domain_attr)) &&
           (wanted.fabric_attr == nullptr || wanted.fabric_attr->name == nullptr ||
            wanted.fabric_attr->name == std::string_view{fabric_name});
}

int family_of(std::uint32_t format) {
    return format == FI_SOCKADDR_IN ? AF_INET : format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_UNSPEC;
}

Addresses resolved(const char *node, const char *service, std::uint64_t flags, int family) {
    const int passive = (flags & FI_SOURCE) != 0 ? AI_PASSIVE : 0;
    const int numeric = (flags & FI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0;
    const addrinfo wanted{.ai_flags = passive | numeric,
                          .ai_family = family,
                          .ai_socktype = SOCK_STREAM,
                          .ai_protocol = 0,
                          .ai_addrlen = 0,
                          .ai_addr = nullptr,
                          .ai_canonname = nullptr,
                          .ai_next = nullptr};
    addrinfo *list = nullptr;
    Addresses addresses;
    if (getaddrinfo(node, service, &wanted, &list) != 0) {
        return addresses;
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{list, freeaddrinfo};
    for (const addrinfo *one = list; one != nullptr; one = one->ai_next) {
        if (const auto address = address_of(one->ai_addr, one->ai_addrlen)) {
            addresses.push_back(*address);
        }
    }
    return addresses;
}

Addresses of_this_machine(int family) {
    ifaddrs *list = nullptr;
    Addresses addresses;
    if (getifaddrs(&list) != 0) {
        return addresses;
    }
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{list, freeifaddrs};
    for (const ifaddrs *one = list; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        const auto address = address_of(one->ifa_addr, sizeof(sockaddr_in6));
        if (address && (family == AF_UNSPEC || family == address->ss_family)) {
            addresses.push_back(*address);
        }
    }
    return addresses;
}

// Copies text into memory that fi_freeinfo(3) frees.
char *copy_of(const char *text) {
    char *const copy = strdup(text);
    if (copy == nullptr) {
        throw std::bad_alloc{};
    }
    return copy;
}

Info made(std::uint32_t version, const fi_info *hints) {
    Info info{fi_dupinfo(nullptr)};
    if (info == nullptr) {
        throw std::bad_alloc{};
    }
    const fi_tx_attr *const sends = hints != nullptr ? hints->tx_attr : nullptr;
    const fi_rx_attr *const receives = hints != nullptr ? hints->rx_attr : nullptr;
    const fi_ep_attr *const endpoint = hints != nullptr ? hints->ep_attr : nullptr;
    const fi_domain_attr *const domain = hints != nullptr ? hints->domain_attr : nullptr;
    info->caps = capabilities;
    info->handle = hints != nullptr ? hints->handle : nullptr;
    info->tx_attr->caps = capabilities & ~FI_RECV;
    info->tx_attr->msg_order = message_order;
    info->tx_attr->size = sends != nullptr && sends->size != 0 ? sends->size : usual_messages;
    info->tx_attr->iov_limit = most_parts;
    info->rx_attr->caps = capabilities & ~FI_SEND;
    info->rx_attr->msg_order = message_order;
    info->rx_attr->size = receives != nullptr && receives->size != 0 ? receives->size : usual_messages;
    info->rx_attr->iov_limit = most_parts;
    info->ep_attr->type = FI_EP_SOCK_STREAM;
    info->ep_attr->protocol = endpoint != nullptr && endpoint->protocol == FI_PROTO_IWARP
                                  ? std::uint32_t{FI_PROTO_IWARP}
                                  : std::uint32_t{FI_PROTO_RSTREAM};
    info->ep_attr->protocol_version = 1;
    info->ep_attr->max_msg_size = SSIZE_MAX;
    info->ep_attr->tx_ctx_cnt = 1;
    info->ep_attr->rx_ctx_cnt = 1;
    info->domain_attr->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
    info->domain_attr->threading =
        domain != nullptr && domain->threading != FI_THREAD_UNSPEC ? domain->threading : FI_THREAD_SAFE;
    info->domain_attr->control_progress = domain != nullptr && domain->control_progress == FI_PROGRESS_AUTO
                                              ? FI_PROGRESS_AUTO
                                              : FI_PROGRESS_MANUAL;
    info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    info->domain_attr->resource_mgmt = FI_RM_ENABLED;
    info->domain_attr->tx_ctx_cnt = 1;
    info->domain_attr->rx_ctx_cnt = 1;
    info->domain_attr->max_ep_tx_ctx = 1;
    info->domain_attr->max_ep_rx_ctx = 1;
    info->fabric_attr->name = copy_of(fabric_name);
    info->fabric_attr->prov_version = FI_VERSION(1, 0);
    info->fabric_attr->api_version = version;
    return info;
}

std::uint32_t format_of(const fi_info *hints, const sockaddr_storage &address) {
    if (hints != nullptr && hints->addr_format == FI_SOCKADDR) {
        return FI_SOCKADDR;
    }
    return address.ss_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
}

// The infos that are found, in a list.
class Found {
public:
    Found(std::uint32_t version, const fi_info *hints) : version_{version}, hints_{hints} {}

    // Adds an info for each device that serves the local address. The other address may be nullptr.
    void add(const sockaddr_storage &local, const sockaddr_storage *peer) {
        const bool everywhere = base::is_wildcard(local);
        const auto of_kernel =
            everywhere ? base::Result<const stream::Device *>{nullptr} : stream::Device::of_kernel_at(local);
        if (of_kernel && *of_kernel != nullptr) {
            add(**of_kernel, local, peer);
        }
        if (const auto soft = stream::Device::soft_at(local); soft) {
            add(**soft, local, peer);
        }
    }
    [[nodiscard]] fi_info *release() { return first_.release(); }

private:
    void add(const stream::Device &device, const sockaddr_storage &local, const sockaddr_storage *peer) {
        const fi_domain_attr *const wanted = hints_ != nullptr ? hints_->domain_attr : nullptr;
        if (wanted != nullptr && wanted->name != nullptr && wanted->name != std::string_view{device.name()}) {
            return;
        }
        Info info = made(version_, hints_);
        info->addr_format = format_of(hints_, local);
        set_address(info->src_addr, info->src_addrlen, local);
        if (peer != nullptr) {
            set_address(info->dest_addr, info->dest_addrlen, *peer);
        }
        set_device(*info, device.name());
        fi_info *const added = info.get();
        if (last_ == nullptr) {
            first_ = std::move(info);
        } else {
            last_->next = info.release();
        }
        last_ = added;
    }

    const std::uint32_t version_;
    const fi_info *const hints_;
    Info first_;
    fi_info *last_ = nullptr;
};

}  // namespace

std::optional<sockaddr_storage> address_of(const void *bytes, std::size_t size) {
    sockaddr_storage address{};
    if (bytes == nullptr || size < sizeof(sa_family_t)) {
        return std::nullopt;
    }
    std::memcpy(&address.ss_family, bytes, sizeof(sa_family_t));
    const std::size_t needed = base::length_of(address);
    if ((address.ss_family != AF_INET && address.ss_family != AF_INET6) || size < needed) {
        return std::nullopt;
    }
    std::memcpy(&address, bytes, needed);
    return address;
}

// NOLINTBEGIN(cppcoreguidelines-no-malloc): fi_freeinfo(3) frees what these give.
void set_address(void *&place, std::size_t &size, const sockaddr_storage &address) {
    void *const copy = std::malloc(base::length_of(address));
    if (copy == nullptr) {
        throw std::bad_alloc{};
    }
    std::free(place);
    place = copy;
    size = base::length_of(address);
    std::memcpy(place, &address, size);
}

void set_device(fi_info &info, const char *name) {
    char *const copy = copy_of(name);
    std::free(info.domain_attr->name);
    info.domain_attr->name = copy;
}
// NOLINTEND(cppcoreguidelines-no-malloc)

int give_address(const sockaddr_storage &address, void *place, std::size_t *size) {
    const std::size_t room = *size;
    *size = base::length_of(address);
    if (place == nullptr && room != 0) {
        return -FI_EINVAL;
    }
    if (room != 0) {
        std::memcpy(place, &address, std::min<std::size_t>(room, *size));
    }
    return room < *size ? -FI_ETOOSMALL : 0;
}

base::Result<const stream::Device *> device_at(const sockaddr_storage &local, std::string_view name) {
    auto device = stream::Device::of_kernel_at(local);
    if (device && (*device == nullptr || (!name.empty() && name != (*device)->name()))) {
        device = stream::Device::soft_at(local);
    }
    return device;
}

int get_info(std::uint32_t version, const char *node, const char *service, std::uint64_t flags,
             const fi_info *hints, fi_info **info) {
    if (hints != nullptr && !suits(*hints)) {
        return -FI_ENODATA;
    }
    return guarded([&] {
        const int family = family_of(hints != nullptr ? hints->addr_format : std::uint32_t{FI_FORMAT_UNSPEC});
        auto local = hints != nullptr ? address_of(hints->src_addr, hints->src_addrlen) : std::nullopt;
        auto peer = hints != nullptr ? address_of(hints->dest_addr, hints->dest_addrlen) : std::nullopt;
        const bool names = node != nullptr || service != nullptr;
        const Addresses named = names ? resolved(node, service, flags, family) : Addresses{};
        Addresses locals = local ? Addresses{*local} : Addresses{};
        Addresses peers = peer ? Addresses{*peer} : Addresses{};
        if (names) {
            ((flags & FI_SOURCE) != 0 ? locals : peers) = named;
        }
        Found found{version, hints};
        if (names && named.empty()) {
            return -FI_ENODATA;
        }
        if (peers.empty()) {
            for (const sockaddr_storage &one : locals.empty() ? of_this_machine(family) : locals) {
                found.add(one, nullptr);
            }
        }
        for (const sockaddr_storage &one : peers) {
            const auto source = stream::source_to(one);
            if (locals.empty() && source) {
                sockaddr_storage from = *source;
                base::set_port(from, 0);
                found.add(from, &one);
            }
            for (const sockaddr_storage &from : locals) {
                if (from.ss_family == one.ss_family) {
                    found.add(from, &one);
                }
            }
        }
        *info = found.release();
        return *info != nullptr ? 0 : -FI_ENODATA;
    });
}

}  // namespace rstream
