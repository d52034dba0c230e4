// SPDX-License-Identifier: BSD-3-Clause
// soft/cm: the addresses and the end of an id of either kind.
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/address.hpp"
#include "base/log.hpp"
#include "soft/cm/cm.hpp"
#include "soft/device/device.hpp"
#include "soft/queues/any_queue_pair.hpp"

namespace soft {

CmId::CmId(EventChannel *event_channel, void *id_context) : LibrdmacmId{}, channel_{event_channel} {
    channel = event_channel;
    context = id_context;
    ps = RDMA_PS_TCP;
    qp_type = IBV_QPT_RC;
}

CmId::~CmId() {
    if (inherited()) {
        delete static_cast<Event *>(event);
        return;  // the id is the parent's: nothing is sent, and its channel is not touched
    }
    drop_event();
    if (channel_ == nullptr) {
        return;  // a request that was never delivered
    }
    awaited_no_more();
    // The program does not know the id of a request that it has not fetched, so these ids are destroyed too.
    EventQueue all_unseen = channel_->withdraw(count_);
    while (const auto unseen = all_unseen.pop()) {
        if (unseen->event == RDMA_CM_EVENT_CONNECT_REQUEST && unseen->id != this) {
            delete static_cast<CmId *>(unseen->id);
        }
    }
    count_.wait_until_acknowledged();
}

CmId::State CmId::enter(State next) {
    static constexpr std::array names = {
        "idle",      "bound",     "address resolved", "route resolved", "connecting", "responded",
        "connected", "listening", "adopting",         "requested",      "closed"};
    const State before = state_.exchange(next);
    const auto text_of = [](const tcp::Address &address) {
        return address.ss_family == AF_UNSPEC ? tcp::Text{} : tcp::text_of(address);
    };
    BASE_LOG_PEER(Debug, "id %p, here %s, peer %s: %s, was %s", static_cast<void *>(this),
                  text_of(route.addr.src_storage).c_str(), text_of(peer()).c_str(),
                  names[static_cast<std::size_t>(next)], names[static_cast<std::size_t>(before)]);
    return before;
}

bool CmId::inherited() const {
    reads_channel();
    return channel_ != nullptr && channel_->group()->inherited();
}

// An id has the protection domain of its device until a queue pair brings another.
base::Result<void> CmId::set_source(const tcp::Address &address) {
    rdma_ib_addr &identity = route.addr.addr.ibaddr;
    std::memcpy(&route.addr.src_storage, &address, sizeof(address));
    identity.sgid = gid_of(route.addr.src_addr);
    if (verbs != nullptr) {
        return {};
    }
    const auto device = device_of(route.addr.src_addr);
    if (!device) {
        return std::unexpected{device.error()};
    }
    if (*device != nullptr) {
        const auto opened = context_of(**device);
        if (!opened) {
            return std::unexpected{opened.error()};
        }
        verbs = *opened;
        port_num = 1;
        identity.pkey = default_pkey;
        pd = pd == nullptr ? &default_domain_of(*verbs) : pd;
    }
    return {};
}

void CmId::set_destination(const sockaddr &address) {
    std::memcpy(&route.addr.dst_storage, &address, base::length_of(address));
    route.addr.addr.ibaddr.dgid = gid_of(address);
}

base::Result<void> CmId::resolve_address(const sockaddr *source, const sockaddr &asked_for) {
    const tcp::Address there = tcp::copy_of(asked_for);
    const auto &destination = reinterpret_cast<const sockaddr &>(there);
    if (source != nullptr && state_.load() == State::Idle) {
        if (auto bound = bind(*source); !bound) {
            return bound;
        }
    }
    const bool bound_elsewhere =
        state_.load() == State::Bound && route.addr.src_addr.sa_family != destination.sa_family;
    if ((state_.load() != State::Idle && state_.load() != State::Bound) || bound_elsewhere) {
        return base::failure(EINVAL);
    }
    // The bound address names the interface. For a group that is the only way, because there may be no route.
    const tcp::Address here = tcp::copy_of(route.addr.src_addr);
    auto towards = tcp::source_towards(destination, verbs != nullptr ? &here : nullptr);
    if (!towards) {
        return std::unexpected{towards.error()};
    }
    if (verbs == nullptr) {
        // It is bound to no address, or not bound at all, so the port stays.
        reinterpret_cast<sockaddr_in &>(*towards).sin_port = route.addr.src_sin.sin_port;
        if (auto found = set_source(*towards); !found) {
            return found;
        }
    }
    if (verbs == nullptr) {
        return base::failure(ENODEV);
    }
    set_destination(destination);
    enter(State::AddressResolved);
    push(RDMA_CM_EVENT_ADDR_RESOLVED);
    return wait_if_synchronous();
}

base::Result<void> CmId::resolve_route() {
    if (state_.load() != State::AddressResolved) {
        return base::failure(EINVAL);
    }
    enter(State::RouteResolved);
    push(RDMA_CM_EVENT_ROUTE_RESOLVED);
    return wait_if_synchronous();
}

bool CmId::has_device(const tcp::Address &peer) const {
    if (verbs == nullptr) {
        BASE_LOG_PEER(
            Warning,
            "%s asks for a connection with %s: refused, for no device serves that address; expected is "
            "one that an interface has which is up",
            tcp::text_of(peer).c_str(), tcp::text_of(route.addr.src_storage).c_str());
    }
    return verbs != nullptr;
}

void CmId::destroy_queue_pair() {
    if (qp != nullptr) {
        AnyQueuePair::destroy(AnyQueuePair::of(std::exchange(qp, nullptr)));
    }
}

std::shared_ptr<Group> CmId::channel_group() {
    const base::Lock lock{mutex_};
    return channel_->group();
}

}  // namespace soft
