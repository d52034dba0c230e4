// SPDX-License-Identifier: BSD-3-Clause
// soft/cm_api: softrdma_rdma_X, the C face of the connection manager: 0, or -1 and errno.
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/log.hpp"
#include "soft/cm.hpp"
#include "softrdma.h"

namespace {

using soft::CmId;
using soft::Event;
using soft::EventChannel;

CmId &id_of(rdma_cm_id *id) {
    return *static_cast<CmId *>(id);
}

int failed(int error) {
    errno = error;
    return -1;
}

// Runs a call; a failure, or memory that is out, becomes -1 and errno.
template <typename Call>
int status_of(Call call) {
    try {
        const base::Result<void> result = call();
        return result ? 0 : failed(result.error().number);
    } catch (const std::bad_alloc &) {
        return failed(ENOMEM);
    }
}

template <typename Make, typename T>
int made(Make make, T **out) {
    return status_of([&]() -> base::Result<void> {
        auto result = make();
        if (!result) {
            return std::unexpected{result.error()};
        }
        *out = *result;
        return {};
    });
}

// One answer, with its address.
struct AddressInfo : rdma_addrinfo {
    sockaddr_storage address;
};

// getaddrinfo's failures as errno, as librdmacm gives them.
int errno_of(int lookup_error) {
    switch (lookup_error) {
        case EAI_SYSTEM:
            return errno;
        case EAI_MEMORY:
            return ENOMEM;
        case EAI_AGAIN:
            return EAGAIN;
        case EAI_FAMILY:
            return EAFNOSUPPORT;
        default:
            return ENODATA;
    }
}

}  // namespace

rdma_event_channel *softrdma_rdma_create_event_channel() {
    EventChannel *channel = nullptr;
    return made(EventChannel::create, &channel) == 0 ? channel : nullptr;
}

void softrdma_rdma_destroy_event_channel(rdma_event_channel *channel) {
    delete static_cast<EventChannel *>(channel);
}

int softrdma_rdma_get_cm_event(rdma_event_channel *channel, rdma_cm_event **event) {
    Event *next = nullptr;
    if (made([&] { return static_cast<EventChannel *>(channel)->next(); }, &next) != 0) {
        return -1;
    }
    *event = next;
    return 0;
}

int softrdma_rdma_ack_cm_event(rdma_cm_event *event) {
    if (event == nullptr) {
        return failed(EINVAL);
    }
    auto *const acknowledged = static_cast<Event *>(event);
    CmId &id = *acknowledged->counted;
    delete acknowledged;
    id.acknowledged();
    return 0;
}

int softrdma_rdma_create_id(rdma_event_channel *channel, rdma_cm_id **id, void *context, rdma_port_space ps) {
    if (ps != RDMA_PS_TCP) {
        BASE_LOG(Error, "port space 0x%x: this device has RDMA_PS_TCP", static_cast<unsigned>(ps));
        return failed(EPROTONOSUPPORT);
    }
    return made([&] { return CmId::create(static_cast<EventChannel *>(channel), context); }, id);
}

int softrdma_adopt(rdma_event_channel *channel, int fd, void *context, rdma_cm_id **id) {
    if (channel == nullptr || id == nullptr) {
        return failed(EINVAL);
    }
    return made([&] { return CmId::adopt(*static_cast<EventChannel *>(channel), fd, context); }, id);
}

int softrdma_rdma_destroy_id(rdma_cm_id *id) {
    delete &id_of(id);
    return 0;
}

int softrdma_rdma_migrate_id(rdma_cm_id *id, rdma_event_channel *channel) {
    return status_of([&] { return id_of(id).migrate(static_cast<EventChannel *>(channel)); });
}

int softrdma_rdma_set_option(rdma_cm_id *id, int level, int optname, void *optval, size_t optlen) {
    return status_of([&] { return id_of(id).set_option(level, optname, optval, optlen); });
}

int softrdma_rdma_bind_addr(rdma_cm_id *id, sockaddr *addr) {
    return status_of([&] { return id_of(id).bind(*addr); });
}

int softrdma_rdma_listen(rdma_cm_id *id, int backlog) {
    return status_of([&] { return id_of(id).listen(backlog); });
}

// Resolving asks the routing table only: it never waits, so the timeout is not used.
int softrdma_rdma_resolve_addr(rdma_cm_id *id, sockaddr *src_addr, sockaddr *dst_addr, int) {
    return status_of([&] { return id_of(id).resolve_address(src_addr, *dst_addr); });
}

int softrdma_rdma_resolve_route(rdma_cm_id *id, int) {
    return status_of([&] { return id_of(id).resolve_route(); });
}

int softrdma_rdma_create_qp(rdma_cm_id *id, ibv_pd *pd, ibv_qp_init_attr *attributes) {
    return status_of([&] { return id_of(id).create_queue_pair(pd, *attributes); });
}

int softrdma_rdma_create_qp_ex(rdma_cm_id *id, ibv_qp_init_attr_ex *attributes) {
    const auto operations = soft::send_operations_of(*attributes);
    if (!operations) {
        return failed(operations.error().number);
    }
    return status_of([&] {
        return id_of(id).create_queue_pair(attributes->pd, reinterpret_cast<ibv_qp_init_attr &>(*attributes),
                                           *operations);
    });
}

void softrdma_rdma_destroy_qp(rdma_cm_id *id) {
    id_of(id).destroy_queue_pair();
}

int softrdma_rdma_connect(rdma_cm_id *id, rdma_conn_param *parameters) {
    return status_of([&] { return id_of(id).connect(parameters); });
}

int softrdma_rdma_accept(rdma_cm_id *id, rdma_conn_param *parameters) {
    return status_of([&] { return id_of(id).accept(parameters); });
}

int softrdma_rdma_reject(rdma_cm_id *id, const void *private_data, uint8_t private_data_len) {
    return status_of(
        [&] { return id_of(id).reject({static_cast<const std::byte *>(private_data), private_data_len}); });
}

int softrdma_rdma_disconnect(rdma_cm_id *id) {
    return status_of([&] { return id_of(id).disconnect(); });
}

__be16 softrdma_rdma_get_src_port(rdma_cm_id *id) {
    return id->route.addr.src_sin.sin_port;
}  // at the same place for IPv6
__be16 softrdma_rdma_get_dst_port(rdma_cm_id *id) {
    return id->route.addr.dst_sin.sin_port;
}

int softrdma_rdma_getaddrinfo(const char *node, const char *service, const rdma_addrinfo *hints,
                              rdma_addrinfo **res) {
    const int flags = hints != nullptr ? hints->ai_flags : 0;
    const bool passive = (flags & RAI_PASSIVE) != 0;
    addrinfo asked{};
    asked.ai_socktype = SOCK_STREAM;
    asked.ai_flags = (passive ? AI_PASSIVE : 0) | ((flags & RAI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0);
    asked.ai_family = (flags & RAI_FAMILY) != 0 ? hints->ai_family : AF_UNSPEC;
    addrinfo *found = nullptr;
    if (const int error = getaddrinfo(node, service, &asked, &found); error != 0) {
        return failed(errno_of(error));
    }
    auto *const answer = new (std::nothrow) AddressInfo{};
    if (answer != nullptr) {
        std::memcpy(&answer->address, found->ai_addr, found->ai_addrlen);
        answer->ai_flags = flags;
        answer->ai_family = found->ai_family;
        answer->ai_qp_type = IBV_QPT_RC;
        answer->ai_port_space = RDMA_PS_TCP;
        (passive ? answer->ai_src_addr : answer->ai_dst_addr) =
            reinterpret_cast<sockaddr *>(&answer->address);
        (passive ? answer->ai_src_len : answer->ai_dst_len) = found->ai_addrlen;
    }
    freeaddrinfo(found);
    if (answer == nullptr) {
        return failed(ENOMEM);
    }
    *res = answer;
    return 0;
}

void softrdma_rdma_freeaddrinfo(rdma_addrinfo *res) {
    delete static_cast<AddressInfo *>(res);
}

const char *softrdma_rdma_event_str(rdma_cm_event_type event) {
    static constexpr std::array names{
        "RDMA_CM_EVENT_ADDR_RESOLVED",  "RDMA_CM_EVENT_ADDR_ERROR",      "RDMA_CM_EVENT_ROUTE_RESOLVED",
        "RDMA_CM_EVENT_ROUTE_ERROR",    "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
        "RDMA_CM_EVENT_CONNECT_ERROR",  "RDMA_CM_EVENT_UNREACHABLE",     "RDMA_CM_EVENT_REJECTED",
        "RDMA_CM_EVENT_ESTABLISHED",    "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
        "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
        "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
    const auto index = static_cast<std::size_t>(event);
    return index < names.size() ? names[index] : "UNKNOWN EVENT";
}
