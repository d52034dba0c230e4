// SPDX-License-Identifier: BSD-3-Clause
// soft/cm: an id: addresses, queue pair, disconnect, end.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/address.hpp"
#include "base/log.hpp"
#include "soft/cm/cm.hpp"
#include "soft/cm/datagram_id.hpp"
#include "soft/device/device.hpp"

namespace soft {

base::Result<CmId *> CmId::create(EventChannel *channel, void *context, rdma_port_space port_space) {
    OwnChannel own;
    if (channel != nullptr && channel->group()->inherited()) {
        return base::failure(EINVAL);
    }
    if (channel == nullptr) {
        auto made = EventChannel::create();
        if (!made) {
            return std::unexpected{made.error()};
        }
        own.reset(*made);
        channel = own.get();
    }
    auto *const id =
        port_space == RDMA_PS_TCP ? new CmId{channel, context} : new DatagramId{channel, context, port_space};
    id->own_channel_ = std::move(own);
    id->sync = id->own_channel_ ? 1 : 0;
    return id;
}

CmId::CmId(EventChannel *event_channel, void *id_context) : LibrdmacmId{}, channel_{event_channel} {
    channel = event_channel;
    context = id_context;
    ps = RDMA_PS_TCP;
    qp_type = IBV_QPT_RC;
}

CmId::~CmId() {
    if (inherited()) {
        delete static_cast<Event *>(event);
        return;  // the parent's: nothing is sent, nothing is taken from its channel
    }
    listener_.reset();
    end_handshake();
    if (const InUse connected = queue_pair()) {
        connected->forget_owner(*this);
    }
    if (state_.load() == State::Requested && !CmId::reject({})) {
        BASE_LOG(Debug, "a request that was dropped could not be rejected: the peer is gone");
    }
    drop_event();
    if (channel_ == nullptr) {
        return;  // a request that was never delivered
    }
    awaited_no_more();
    // A request that nobody fetched is an id that nobody knows.
    EventQueue all_unseen = channel_->withdraw(count_);
    while (const auto unseen = all_unseen.pop()) {
        if (unseen->event == RDMA_CM_EVENT_CONNECT_REQUEST && unseen->id != this) {
            delete static_cast<CmId *>(unseen->id);
        }
    }
    count_.wait_until_acknowledged();
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

base::Result<void> CmId::bind(const sockaddr &address) {
    if (state_.load() != State::Idle) {
        return base::failure(EINVAL);
    }
    const tcp::Address here = tcp::copy_of(address);
    auto socket = tcp::bound(reinterpret_cast<const sockaddr &>(here), options_);
    if (!socket) {
        return std::unexpected{socket.error()};
    }
    socket_ = std::move(*socket);
    if (auto found = set_source(tcp::local_address(socket_.get())); !found) {
        socket_.reset();
        return found;
    }
    state_.store(State::Bound);
    return {};
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
    // Where it is bound says by which interface: the only way to say it of a group, for which there may be no
    // route.
    const tcp::Address here = tcp::copy_of(route.addr.src_addr);
    auto towards = tcp::source_towards(destination, verbs != nullptr ? &here : nullptr);
    if (!towards) {
        return std::unexpected{towards.error()};
    }
    if (verbs == nullptr) {
        // Bound to no address, or not bound at all: the port stays.
        reinterpret_cast<sockaddr_in &>(*towards).sin_port = route.addr.src_sin.sin_port;
        if (auto found = set_source(*towards); !found) {
            return found;
        }
    }
    if (verbs == nullptr) {
        return base::failure(ENODEV);
    }
    set_destination(destination);
    state_.store(State::AddressResolved);
    push(RDMA_CM_EVENT_ADDR_RESOLVED);
    return wait_if_synchronous();
}

base::Result<void> CmId::resolve_route() {
    if (state_.load() != State::AddressResolved) {
        return base::failure(EINVAL);
    }
    state_.store(State::RouteResolved);
    push(RDMA_CM_EVENT_ROUTE_RESOLVED);
    return wait_if_synchronous();
}

void CmId::destroy_queue_pair() {
    if (state_.load() == State::Connecting && !inherited()) {
        end_handshake();
    }
    if (qp != nullptr) {
        AnyQueuePair::destroy(AnyQueuePair::of(std::exchange(qp, nullptr)));
        if (state_.load() == State::Connected && !inherited()) {
            connection_ended();  // with the queue pair, which told nobody: whoever waits for the event gets
                                 // it
        }
    }
}

CmId::InUse::InUse(AnyQueuePair::Hold found) : hold_{std::move(found)} {
    if (hold_.get() != nullptr && hold_.get()->qp_base.qp_type == IBV_QPT_RC) {
        queue_pair_ = static_cast<QueuePair *>(hold_.get());
    }
}

CmId::InUse CmId::queue_pair() const {
    return InUse{AnyQueuePair::find(qp_num_)};
}

base::Result<CmId::InUse> CmId::choose_queue_pair(std::uint32_t number) {
    const std::uint32_t before = std::exchange(qp_num_, qp == nullptr ? number : qp->qp_num);
    InUse chosen = queue_pair();
    if (!chosen || !chosen->idle()) {
        qp_num_ = before;
        return base::failure(EINVAL);
    }
    return chosen;
}

base::Result<void> CmId::disconnect_when_sent() {
    if (const InUse connected = queue_pair(); !connected || !connected->disconnect_when_sent(*this)) {
        return base::failure(EINVAL);
    }
    return {};
}

base::Result<void> CmId::disconnect() {
    if (const InUse connected = queue_pair(); !connected || !connected->disconnect(*this)) {
        return base::failure(EINVAL);
    }
    if (event != nullptr &&
        (event->event == RDMA_CM_EVENT_DISCONNECTED || event->event == RDMA_CM_EVENT_CONNECT_ERROR)) {
        return {};  // of a synchronous id: the end has no second event
    }
    return wait_if_synchronous();
}

void CmId::connection_established() {
    const bool told_by_program = state_.load() == State::Responded;
    state_.store(State::Connected);
    awaited_no_more();
    {
        const base::Lock lock{mutex_};
        established_told_ = true;
    }
    if (!told_by_program) {
        push_outcome(RDMA_CM_EVENT_ESTABLISHED);
    }
}

void CmId::connection_ended() {
    bool told = false;
    awaited_no_more();
    {
        const base::Lock lock{mutex_};
        told = established_told_;
    }
    state_.store(State::Closed);
    if (told) {
        push(RDMA_CM_EVENT_DISCONNECTED, 0, std::move(end_));
    } else {
        push(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET, std::move(end_));
    }
}

void CmId::end_handshake() {
    if (handshake_group_) {
        const base::Lock lock{handshake_group_->mutex()};
        handshake_.reset();
    }
}

std::shared_ptr<Group> CmId::channel_group() {
    const base::Lock lock{mutex_};
    return channel_->group();
}

void CmId::handshake_done(Handshake &handshake, const wire::MpaFrame &frame) {
    handshake_group_->mutex().assert_held();
    if (handshake.role() == Handshake::Role::Responder) {
        adopted_request_arrived(handshake, frame);
    } else {
        reply_arrived(handshake, frame);
    }
    handshake_.reset();
}

// rdma_cm's status of an iWARP connection: refused or reset is a rejection, no answer is unreachable.
void CmId::handshake_failed(Handshake &handshake, int error) {
    handshake_group_->mutex().assert_held();
    if (handshake.role() == Handshake::Role::Initiator) {
        state_.store(State::Closed);
        if (error == ECONNREFUSED || error == ECONNRESET) {
            push(RDMA_CM_EVENT_REJECTED, -error, std::move(outcome_));
        } else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
            push(RDMA_CM_EVENT_UNREACHABLE, -error, std::move(outcome_));
        } else {
            push(RDMA_CM_EVENT_CONNECT_ERROR, -error, std::move(outcome_));
        }
    } else {
        adoption_failed(error);
    }
    handshake_.reset();
}

}  // namespace soft
