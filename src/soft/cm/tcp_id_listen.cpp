// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/tcp_id_listen: the responder's side of an id of RDMA_PS_TCP: rdma_listen, and the MPA requests that
// come. Each request becomes an id of its own, which the program accepts or rejects (tcp_id_respond.cpp).
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "soft/cm/rejection.hpp"
#include "soft/cm/tcp_id.hpp"
#include "soft/cm/wanted.hpp"
#include "soft/tls/tls_start.hpp"

namespace soft {

namespace {

// Rejects a request that this device does not support, and returns whether it did.
bool reject_if_unsupported(Handshake &handshake, const wire::MpaFrame &request) {
    const bool unsupported = request.markers || request.revision > 2;
    if (unsupported) {
        BASE_LOG_PEER(Warning, "%s asks for %s: refused", tcp::text_of(handshake.peer()).c_str(),
                      request.markers ? "MPA markers" : "an MPA revision above 2");
        (void)refuse(handshake.take_link(), handshake.peer(), request, Reason::Unsaid, {});
    }
    return unsupported;
}

}  // namespace

base::Result<void> TcpId::listen(int backlog) {
    if (state_.load() == State::Idle) {
        sockaddr_in anywhere{};
        anywhere.sin_family = AF_INET;
        if (auto bound = bind(reinterpret_cast<const sockaddr &>(anywhere)); !bound) {
            return bound;
        }
    }
    if (state_.load() != State::Bound) {
        return base::failure(EINVAL);
    }
    if (auto ready = may_let_in(*tls_); !ready) {
        return ready;
    }
    const int length =
        std::clamp(backlog > 0 ? backlog : limits::default_listen_backlog, 1, limits::max_listen_backlog);
    auto spare = Listener::spare_of(socket_);
    if (!spare) {
        return base::Failure{spare.error()};
    }
    if (auto listening = tcp::listen(socket_.get(), length); !listening) {
        return listening;
    }
    listener_ = std::make_unique<Listener>(*this, std::move(socket_), *std::move(spare), channel_group(),
                                           tls_, false);
    enter(State::Listening);
    return {};
}

base::Result<CmId *> TcpId::adopt(EventChannel &channel, int fd, int flags, void *context) {
    if (channel.group()->inherited()) {
        return base::failure(EINVAL);
    }
    const bool shared = (flags & SOFTRDMA_ADOPT_SHARE_FD) != 0;
    auto socket = tcp::adopted(fd, shared);
    if (!socket) {
        return std::unexpected{socket.error()};
    }
    std::unique_ptr<TcpId> id{new TcpId{&channel, context}};
    if ((flags & SOFTRDMA_ADOPT_INITIATOR) != 0) {
        const auto peer = tcp::peer_address(socket->get());
        if (auto known = id->set_source(tcp::local_address(socket->get())); !known) {
            return std::unexpected{known.error()};
        }
        id->set_destination(reinterpret_cast<const sockaddr &>(peer));
        if (!id->has_device(peer)) {
            return base::failure(ENODEV);
        }
        id->socket_ = std::move(*socket);
        id->enter(State::RouteResolved);
        if (!shared) {
            close(fd);
        }
        return id.release();
    }
    id->enter(State::Adopting);
    id->handshake_group_ = channel.group();
    const base::Lock lock{id->handshake_group_->mutex()};
    id->handshake_ = Handshake::begin(*id, id->handshake_group_, std::move(*socket), tcp::peer_address(fd),
                                      id->tls_, nullptr);
    if (!id->handshake_) {
        id->adoption_failed(ETIMEDOUT);
    }
    if (!shared) {
        close(fd);
    }
    return id.release();
}

// Here and below, the steps that need memory come first; without memory, the peer sees the end of its
// connection.
void TcpId::request_arrived(Handshake &handshake, const wire::MpaFrame &request) {
    if (reject_if_unsupported(handshake, request)) {
        return;
    }
    const base::Origin origin = base::origin_of(handshake.peer());
    if (!make_room_for_request(origin)) {
        BASE_LOG_PEER(Warning, "no connection with %s: the program has not fetched the %d requests before",
                      tcp::text_of(handshake.peer()).c_str(), limits::in_force().max_unfetched_requests);
        return;
    }
    look_at_awaited(origin);
    std::unique_ptr<TcpId> child{
        new TcpId{nullptr, context}};  // unless it is delivered, its destructor rejects the request
    child->tls_ = tls_;
    auto made = request_event(*child, request);
    if (!child->become(handshake, request)) {
        return;
    }
    made->counted = &count_;
    made->requested_by = origin;
    count_.request_waits();
    // The lock is held because the listener may just be migrated; the child goes to the same channel as its
    // event.
    const base::Lock lock{mutex_};
    child.release()->arrived_on(*channel_);
    channel_->push(std::move(made));
}

void TcpId::adopted_request_arrived(Handshake &handshake, const wire::MpaFrame &request) {
    if (reject_if_unsupported(handshake, request)) {
        adoption_failed(EPROTO);
        return;
    }
    look_at_awaited(base::origin_of(handshake.peer()));
    auto made = request_event(*this, request);
    if (!become(handshake, request)) {
        (void)TcpId::reject({});
        push(RDMA_CM_EVENT_CONNECT_ERROR, -ENODEV, std::move(outcome_));
        return;
    }
    count_.request_waits();
    push(std::move(made));
}

// When no place is free, the newest request of the origin that has most is rejected. So a peer that asks
// again and again takes no places from others.
bool TcpId::make_room_for_request(base::Origin origin) {
    if (count_.unfetched_requests() < limits::in_force().max_unfetched_requests) {
        return true;
    }
    std::unique_ptr<Event> withdrawn;
    {
        const base::Lock lock{mutex_};
        withdrawn = channel_->withdraw_request(count_, origin);
    }
    if (withdrawn == nullptr) {
        return false;
    }
    const std::unique_ptr<TcpId> child{
        static_cast<TcpId *>(withdrawn->id)};  // its destructor rejects the request
    BASE_LOG_PEER(Warning, "no connection with %s: the program has not fetched %d requests, most from there",
                  tcp::text_of(child->peer()).c_str(), limits::in_force().max_unfetched_requests);
    return true;
}

// A client that connects again may have got ESTABLISHED for its earlier connection. Then the first FPDU of
// that has come, and the program is told of it first. A thread that serves that connection now may wait for a
// page of memory, so this waits for it only for a short time.
void TcpId::look_at_awaited(base::Origin origin) {
    std::vector<EventChannel::Awaited> awaited;
    base::Clock::time_point until;
    {
        const base::Lock lock{mutex_};
        awaited = channel_->newest_awaited_from(origin);
        until = channel_->may_wait_until();
    }
    bool in_vain = false;
    for (const auto &one : awaited) {
        const HeldQueuePair connection{AnyQueuePair::find(one.qp_num)};
        in_vain = (connection && !connection->look_for_first_fpdu(until)) || in_vain;
    }
    if (in_vain) {
        const base::Lock lock{mutex_};
        channel_->waited_in_vain();
    }
}

void TcpId::adoption_failed(int error) {
    if (state_.load() == State::Adopting) {
        enter(State::Closed);
        push(RDMA_CM_EVENT_CONNECT_ERROR, -error, std::move(outcome_));
    }
}

bool TcpId::become(Handshake &handshake, const wire::MpaFrame &request) {
    keep_proof(handshake.take_proof());
    request_ = request;
    request_.private_data = {};
    link_ = handshake.take_link();
    const bool has_source = set_source(tcp::local_address(link_->descriptor())).has_value();
    const tcp::Address peer = handshake.peer();
    set_destination(reinterpret_cast<const sockaddr &>(peer));
    enter(State::Requested);
    return has_source && has_device(peer);
}

std::unique_ptr<Event> TcpId::request_event(TcpId &child, const wire::MpaFrame &request) {
    auto made = std::make_unique<Event>();
    made->event = RDMA_CM_EVENT_CONNECT_REQUEST;
    made->id = &child;
    made->listen_id = &child == this ? nullptr : this;
    // The depths are crossed: the number of requests that the peer may have open is the number that this side
    // must serve.
    made->param.conn.responder_resources = told_depth(request.enhanced ? request.ord : limits::max_rd_atomic);
    made->param.conn.initiator_depth = told_depth(request.enhanced ? request.ird : limits::max_rd_atomic);
    made->set_private_data(request.private_data);
    return made;
}

}  // namespace soft
