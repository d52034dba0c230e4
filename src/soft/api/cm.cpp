// SPDX-License-Identifier: BSD-3-Clause
// soft/api/cm: softrdma_rdma_X, the C functions of the connection manager. They return 0, or -1 and errno.
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "base/log.hpp"
#include "soft/api/made.hpp"
#include "soft/cm/cm.hpp"
#include "soft/cm/tcp_id.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/environment.hpp"
#include "soft/tls/tls_reading.hpp"
#include "softrdma.h"

namespace {

using soft::CmId;
using soft::Event;
using soft::EventChannel;
using soft::status_failed;
using soft::status_of;

CmId &id_of(rdma_cm_id *id) {
    return *static_cast<CmId *>(id);
}

// Runs a call of an id. The call fails with EINVAL in a child of the process that made the id, where the id's
// locks may be held for ever.
template <typename Call>
int status_of_call(rdma_cm_id *id, Call call) {
    CmId &called = id_of(id);
    return called.inherited() ? status_failed(EINVAL) : status_of([&] { return call(called); });
}

bool is_internet(const sockaddr *address) {
    return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

}  // namespace

// ---- devices ----

ibv_context **softrdma_rdma_get_devices(int *num_devices) {
    return soft::made([&]() -> ibv_context ** {
        std::vector<ibv_context *> contexts;
        for (soft::Device *const device : soft::devices()) {
            if (const auto context = soft::context_of(*device)) {
                contexts.push_back(*context);
            }
        }
        if (num_devices != nullptr) {
            *num_devices = static_cast<int>(contexts.size());
        }
        if (contexts.empty()) {
            return soft::failed<ibv_context *>(ENODEV);
        }
        auto **const list = new ibv_context *[contexts.size() + 1] {};
        std::ranges::copy(contexts, list);
        return list;
    });
}

void softrdma_rdma_free_devices(ibv_context **list) {
    delete[] list;
}

// ---- events ----

rdma_event_channel *softrdma_rdma_create_event_channel() {
    EventChannel *channel = nullptr;
    return status_of(EventChannel::create, &channel) == 0 ? channel : nullptr;
}

void softrdma_rdma_destroy_event_channel(rdma_event_channel *channel) {
    EventChannel::destroy(channel);
}

int softrdma_rdma_get_cm_event(rdma_event_channel *channel, rdma_cm_event **event) {
    if (event == nullptr) {
        return status_failed(EINVAL);
    }
    Event *next = nullptr;
    if (status_of([&] { return EventChannel::next_of(channel); }, &next) != 0) {
        return -1;
    }
    *event = next;
    return 0;
}

int softrdma_events_wait_begin(rdma_event_channel *channel, int *fd) {
    const auto begun = static_cast<EventChannel *>(channel)->begin_wait();
    if (!begun) {
        return begun.error().number;
    }
    *fd = *begun;
    return 0;
}

int softrdma_events_wait_end(rdma_event_channel *channel) {
    const auto ended = static_cast<EventChannel *>(channel)->end_wait();
    return ended ? 0 : ended.error().number;
}

int softrdma_rdma_ack_cm_event(rdma_cm_event *event) {
    if (event == nullptr) {
        return status_failed(EINVAL);
    }
    soft::acknowledge(static_cast<Event *>(event));
    return 0;
}

// ---- ids ----

int softrdma_rdma_create_id(rdma_event_channel *channel, rdma_cm_id **id, void *context, rdma_port_space ps) {
    if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IPOIB) {
        BASE_LOG(Error, "port space 0x%x: this device has RDMA_PS_TCP, RDMA_PS_UDP and RDMA_PS_IPOIB",
                 static_cast<unsigned>(ps));
        return status_failed(EPROTONOSUPPORT);
    }
    return status_of([&] { return CmId::create(static_cast<EventChannel *>(channel), context, ps); }, id);
}

int softrdma_adopt(rdma_event_channel *channel, int fd, void *context, rdma_cm_id **id) {
    return softrdma_adopt_fd(channel, fd, 0, context, id);
}

int softrdma_adopt_fd(rdma_event_channel *channel, int fd, int flags, void *context, rdma_cm_id **id) {
    if (channel == nullptr || id == nullptr ||
        (flags & ~(SOFTRDMA_ADOPT_INITIATOR | SOFTRDMA_ADOPT_SHARE_FD)) != 0) {
        return status_failed(EINVAL);
    }
    return status_of(
        [&] { return soft::TcpId::adopt(*static_cast<EventChannel *>(channel), fd, flags, context); }, id);
}

int softrdma_rdma_destroy_id(rdma_cm_id *id) {
    delete &id_of(id);
    return 0;
}

int softrdma_rdma_migrate_id(rdma_cm_id *id, rdma_event_channel *channel) {
    return status_of_call(id,
                          [&](CmId &called) { return called.migrate(static_cast<EventChannel *>(channel)); });
}

int softrdma_rdma_set_option(rdma_cm_id *id, int level, int optname, void *optval, size_t optlen) {
    return status_of_call(id,
                          [&](CmId &called) { return called.set_option(level, optname, optval, optlen); });
}

int softrdma_rdma_bind_addr(rdma_cm_id *id, sockaddr *addr) {
    if (!is_internet(addr)) {
        return status_failed(EINVAL);
    }
    return status_of_call(id, [&](CmId &called) { return called.bind(*addr); });
}

int softrdma_rdma_listen(rdma_cm_id *id, int backlog) {
    return status_of_call(id, [&](CmId &called) { return called.listen(backlog); });
}

// The timeout is not used: only the routing table is asked, which never waits.
int softrdma_rdma_resolve_addr(rdma_cm_id *id, sockaddr *src_addr, sockaddr *dst_addr, int) {
    if (!is_internet(dst_addr) || (src_addr != nullptr && !is_internet(src_addr))) {
        return status_failed(EINVAL);
    }
    return status_of_call(id, [&](CmId &called) { return called.resolve_address(src_addr, *dst_addr); });
}

int softrdma_rdma_resolve_route(rdma_cm_id *id, int) {
    return status_of_call(id, [&](CmId &called) { return called.resolve_route(); });
}

int softrdma_rdma_connect(rdma_cm_id *id, rdma_conn_param *parameters) {
    return status_of_call(id, [&](CmId &called) { return called.connect(parameters); });
}

int softrdma_rdma_establish(rdma_cm_id *id) {
    return status_of_call(id, [&](CmId &called) { return called.establish(); });
}

int softrdma_rdma_accept(rdma_cm_id *id, rdma_conn_param *parameters) {
    return status_of_call(id, [&](CmId &called) { return called.accept(parameters); });
}

int softrdma_rdma_reject(rdma_cm_id *id, const void *private_data, uint8_t private_data_len) {
    return status_of_call(id, [&](CmId &called) {
        return called.reject({static_cast<const std::byte *>(private_data), private_data_len});
    });
}

// MPA has no field for the reason of a rejection.
int softrdma_rdma_reject_ece(rdma_cm_id *id, const void *private_data, uint8_t private_data_len) {
    return softrdma_rdma_reject(id, private_data, private_data_len);
}

int softrdma_rdma_set_local_ece(rdma_cm_id *id, ibv_ece *ece) {
    return status_failed(id == nullptr || id->qp != nullptr || ece == nullptr ? EINVAL : EOPNOTSUPP);
}

int softrdma_rdma_get_remote_ece(rdma_cm_id *id, ibv_ece *ece) {
    return softrdma_rdma_set_local_ece(id, ece);
}

int softrdma_rdma_disconnect(rdma_cm_id *id) {
    return status_of_call(id, [&](CmId &called) { return called.disconnect(); });
}

int softrdma_disconnect_when_sent(rdma_cm_id *id) {
    return status_of_call(id, [&](CmId &called) { return called.disconnect_when_sent(); });
}

int softrdma_set_tls(rdma_cm_id *id, const char *tls) {
    return id == nullptr ? status_failed(EINVAL)
                         : status_of_call(id, [&](CmId &called) { return called.set_tls(tls); });
}

int softrdma_check_settings() {
    return status_of([] {
        const auto valid = soft::check_variables();
        return valid ? soft::TlsReading{}.check(*soft::tls_of_environment()) : valid;
    });
}

const char *softrdma_identity(const rdma_cm_id *id) {
    return static_cast<const CmId *>(id)->identity();
}

int softrdma_peer_is_known(const rdma_cm_id *id) {
    bool known = false;
    const int status = softrdma_peers_are_known(&id, 1, &known);
    return status != 0 ? status : known ? 1 : 0;
}

int softrdma_peers_are_known(const rdma_cm_id *const *ids, size_t count, bool *known) {
    return status_of([&]() -> base::Result<void> {
        soft::TlsReading files;
        for (size_t place = 0; place < count; ++place) {
            const auto *const asked = static_cast<const CmId *>(ids[place]);
            if (asked == nullptr || asked->inherited()) {
                return base::failure(EINVAL);
            }
            const auto found = asked->peer_is_known(files);
            if (!found) {
                return std::unexpected{found.error()};
            }
            known[place] = *found;
        }
        return {};
    });
}

// The device needs no event to know that a connection is established: TCP has told it.
int softrdma_rdma_notify(rdma_cm_id *id, ibv_event_type) {
    return id_of(id).has_begun() ? 0 : status_failed(EINVAL);
}

int softrdma_rdma_init_qp_attr(rdma_cm_id *id, ibv_qp_attr *attributes, int *mask) {
    const ibv_qp_state state = attributes->qp_state;
    if (id->verbs == nullptr || (state != IBV_QPS_INIT && state != IBV_QPS_RTR && state != IBV_QPS_RTS)) {
        return status_failed(EINVAL);
    }
    *attributes = {};
    attributes->qp_state = state;
    attributes->port_num = id->port_num;
    *mask = IBV_QP_STATE;
    if (id->qp_type != IBV_QPT_UD) {
        attributes->qp_access_flags = soft::governed_access;
        *mask |= IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        // A card of RoCE has P_Keys, and wants the index of one.
        *mask |= state == IBV_QPS_INIT && id->verbs->device->transport_type == IBV_TRANSPORT_IB
                     ? IBV_QP_PKEY_INDEX
                     : 0;
    } else if (state == IBV_QPS_INIT) {
        attributes->qkey = RDMA_UDP_QKEY;
        *mask |= IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_PKEY_INDEX;
    } else if (state == IBV_QPS_RTS) {
        *mask |= IBV_QP_SQ_PSN;
    }
    return 0;
}

__be16 softrdma_rdma_get_src_port(rdma_cm_id *id) {
    return id->route.addr.src_sin.sin_port;
}  // at the same place for IPv6
__be16 softrdma_rdma_get_dst_port(rdma_cm_id *id) {
    return id->route.addr.dst_sin.sin_port;
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
