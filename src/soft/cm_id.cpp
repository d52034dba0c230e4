// SPDX-License-Identifier: BSD-3-Clause
// soft/cm: an id: addresses, queue pair, disconnect, end.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "soft/cm.hpp"
#include "soft/device.hpp"

namespace soft {

base::Result<CmId *> CmId::create(EventChannel *channel, void *context) {
    std::unique_ptr<EventChannel> own;
    if (channel == nullptr) {
        auto made = EventChannel::create();
        if (!made) {
            return std::unexpected{made.error()};
        }
        own.reset(*made);
        channel = own.get();
    }
    auto *const id = new CmId{channel, context};
    id->own_channel_ = std::move(own);
    return id;
}

CmId::CmId(EventChannel *event_channel, void *id_context) : rdma_cm_id{}, channel_{event_channel} {
    channel = event_channel;
    context = id_context;
    ps = RDMA_PS_TCP;
    qp_type = IBV_QPT_RC;
}

CmId::~CmId() {
    if (channel_->group()->inherited()) {
        return;  // the parent's: nothing is sent, nothing is taken from its channel
    }
    end_handshakes();
    if (qp != nullptr) {
        queue_pair()->set_owner(nullptr);
    }
    if (state_.load() == State::Requested && !reject({})) {
        BASE_LOG(Debug, "a request that was dropped could not be rejected: the peer is gone");
    }
    if (last_event_) {
        last_event_.reset();
        acknowledged();
    }
    // A request that nobody fetched is an id that nobody knows.
    for (const auto &unseen : channel_->withdraw(*this)) {
        if (unseen->event == RDMA_CM_EVENT_CONNECT_REQUEST && unseen->id != this) {
            delete static_cast<CmId *>(unseen->id);
        }
    }
    std::unique_lock lock{mutex_};
    acknowledged_.wait(lock, [this] { return unacknowledged_ == 0; });
}

base::Result<void> CmId::set_option(int level, int name, const void *value, std::size_t size) {
    if (level != RDMA_OPTION_ID || (name != RDMA_OPTION_ID_REUSEADDR && name != RDMA_OPTION_ID_AFONLY &&
                                    name != RDMA_OPTION_ID_ACK_TIMEOUT)) {
        return base::failure(ENOSYS);
    }
    if (name == RDMA_OPTION_ID_ACK_TIMEOUT) {
        return {};  // TCP acknowledges
    }
    if (size != sizeof(int) || state_.load() != State::Idle) {
        return base::failure(EINVAL);
    }
    int on = 0;
    std::memcpy(&on, value, sizeof(on));
    if (name == RDMA_OPTION_ID_REUSEADDR) {
        bind_options_.reuse_address = on != 0;
    } else {
        bind_options_.v6_only = on != 0;
    }
    return {};
}

void CmId::set_source(const tcp::Address &address) {
    std::memcpy(&route.addr.src_storage, &address, sizeof(address));
    if (Device *const device = device_of(route.addr.src_addr)) {
        verbs = context_of(*device);
        port_num = 1;
    }
}

base::Result<void> CmId::bind(const sockaddr &address) {
    if (state_.load() != State::Idle || (address.sa_family != AF_INET && address.sa_family != AF_INET6)) {
        return base::failure(EINVAL);
    }
    auto socket = tcp::bound(address, bind_options_);
    if (!socket) {
        return std::unexpected{socket.error()};
    }
    socket_ = std::move(*socket);
    set_source(tcp::local_address(socket_.get()));
    state_.store(State::Bound);
    return {};
}

base::Result<void> CmId::resolve_address(const sockaddr *source, const sockaddr &destination) {
    if (source != nullptr && state_.load() == State::Idle) {
        if (auto bound = bind(*source); !bound) {
            return bound;
        }
    }
    if (state_.load() != State::Idle && state_.load() != State::Bound) {
        return base::failure(EINVAL);
    }
    const auto towards = tcp::source_towards(destination);
    if (!towards) {
        return std::unexpected{towards.error()};
    }
    if (state_.load() == State::Idle || verbs == nullptr) {
        set_source(*towards);
    }
    if (verbs == nullptr) {
        return base::failure(ENODEV);
    }
    std::memcpy(&route.addr.dst_storage, &destination, tcp::length_of(destination));
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

base::Result<void> CmId::create_queue_pair(ibv_pd *domain, ibv_qp_init_attr &attributes,
                                           std::uint64_t send_operations) {
    if (qp != nullptr || domain == nullptr || domain->context != verbs) {
        return base::failure(EINVAL);
    }
    const auto made = soft::create_queue_pair(*domain, attributes, send_operations);
    if (!made) {
        return std::unexpected{made.error()};
    }
    qp = &(*made)->qp_base;
    pd = domain;
    send_cq = attributes.send_cq;
    recv_cq = attributes.recv_cq;
    return {};
}

void CmId::destroy_queue_pair() {
    if (state_.load() == State::Connecting && !channel_->group()->inherited()) {
        end_handshakes();
    }
    delete queue_pair();
    qp = nullptr;
}

base::Result<void> CmId::disconnect() {
    if (qp == nullptr || queue_pair()->idle()) {
        return base::failure(EINVAL);
    }
    queue_pair()->disconnect();
    if (event != nullptr && event->event == RDMA_CM_EVENT_DISCONNECTED) {
        return {};  // of a synchronous id: there is no second one
    }
    return wait_if_synchronous();
}

base::Result<void> CmId::migrate(EventChannel *to) {
    std::unique_ptr<EventChannel> own;
    if (to == nullptr) {
        auto made = EventChannel::create();
        if (!made) {
            return std::unexpected{made.error()};
        }
        own.reset(*made);
        to = own.get();
    }
    if (last_event_) {
        last_event_.reset();
        event = nullptr;
        acknowledged();
    }
    const std::unique_ptr<EventChannel> old = std::exchange(own_channel_, std::move(own));
    const std::scoped_lock lock{mutex_};
    for (auto &waiting : channel_->withdraw(*this)) {
        if (waiting->id != this) {
            static_cast<CmId *>(waiting->id)->arrived_on(*to);
        }
        to->push(std::move(waiting));
    }
    channel_ = to;
    channel = to;
    return {};
}

void CmId::push(rdma_cm_event_type type, int status) {
    auto made = std::make_unique<Event>();
    made->event = type;
    made->status = status;
    made->id = this;
    push(std::move(made));
}

void CmId::push(std::unique_ptr<Event> made) {
    made->counted = this;
    const std::scoped_lock lock{mutex_};
    channel_->push(std::move(made));
}

// Sequentially consistent, though the channel's lock already orders it with ~CmId, which takes that lock
// first.
void CmId::delivered(const Event &fetched) {
    --waiting_;
    ++unacknowledged_;
    if (fetched.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        --unfetched_requests_;
    }
}

void CmId::acknowledged() {
    const std::scoped_lock lock{mutex_};
    --unacknowledged_;
    acknowledged_.notify_all();
}

void CmId::arrived_on(EventChannel &events) {
    const std::scoped_lock lock{mutex_};
    channel_ = &events;
    channel = &events;
}

// What a synchronous id waits for stays readable in id->event until its next call.
base::Result<void> CmId::wait_if_synchronous() {
    if (!own_channel_) {
        return {};
    }
    if (last_event_) {
        last_event_.reset();
        acknowledged();
    }
    auto got = own_channel_->next();
    if (!got) {
        return std::unexpected{got.error()};
    }
    last_event_.reset(*got);
    event = last_event_.get();
    if (event->status != 0) {
        return base::failure(event->status < 0 ? -event->status : event->status);
    }
    return {};
}

void CmId::connection_established() {
    auto made = std::make_unique<Event>();
    made->event = RDMA_CM_EVENT_ESTABLISHED;
    made->id = this;
    made->param.conn.responder_resources = static_cast<std::uint8_t>(parameters_.ird);
    made->param.conn.initiator_depth = static_cast<std::uint8_t>(parameters_.ord);
    made->set_private_data(reply_data_);
    state_.store(State::Connected);
    {
        const std::scoped_lock lock{mutex_};
        established_told_ = true;
    }
    push(std::move(made));
}

void CmId::connection_ended() {
    bool told = false;
    {
        const std::scoped_lock lock{mutex_};
        told = established_told_;
    }
    state_.store(State::Closed);
    if (told) {
        push(RDMA_CM_EVENT_DISCONNECTED);
    } else {
        push(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
    }
}

void CmId::end_handshakes() {
    if (handshake_group_) {
        const std::scoped_lock lock{handshake_group_->mutex()};
        handshakes_.clear();
        if (state_.load() == State::Listening) {
            handshake_group_->remove(*this, socket_.get());
            state_.store(State::Closed);
        }
    }
}

void CmId::begin_handshake(base::Fd socket, Handshake::Role role, const wire::MpaFrame *request) {
    handshakes_.push_back(
        std::make_unique<Handshake>(*this, handshake_group_, std::move(socket), role, request));
}

void CmId::handshake_done(Handshake &handshake, const wire::MpaFrame &frame) {
    if (handshake.role() == Handshake::Role::Responder) {
        request_arrived(handshake, frame);
    } else {
        reply_arrived(handshake, frame);
    }
    std::erase_if(handshakes_, [&](const auto &one) { return one.get() == &handshake; });
}

// rdma_cm's status of an iWARP connection: refused or reset is a rejection, no answer is unreachable.
void CmId::handshake_failed(Handshake &handshake, int error) {
    if (handshake.role() == Handshake::Role::Initiator) {
        state_.store(State::Closed);
        if (error == ECONNREFUSED || error == ECONNRESET) {
            push(RDMA_CM_EVENT_REJECTED, -error);
        } else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
            push(RDMA_CM_EVENT_UNREACHABLE, -error);
        } else {
            push(RDMA_CM_EVENT_CONNECT_ERROR, -error);
        }
    } else {
        adoption_failed(error);
    }
    std::erase_if(handshakes_, [&](const auto &one) { return one.get() == &handshake; });
}

}  // namespace soft
