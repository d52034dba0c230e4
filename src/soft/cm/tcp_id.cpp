// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/tcp_id: tcp_id_connect.cpp, tcp_id_listen.cpp and tcp_id_respond.cpp have the start
// of a connection.
#include "soft/cm/tcp_id.hpp"

#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "soft/tls/openssl.hpp"

namespace soft {

TcpId::TcpId(EventChannel *event_channel, void *id_context) : CmId{event_channel, id_context} {}

TcpId::~TcpId() {
    if (inherited()) {
        return;
    }
    listener_.reset();
    end_handshake();
    if (const HeldQueuePair connected = queue_pair()) {
        connected->forget_owner(*this);
    }
    if (state_.load() == State::Requested && !TcpId::reject({})) {
        BASE_LOG(Debug, "a request that was dropped could not be rejected: the peer is gone");
    }
}

base::Result<void> TcpId::bind(const sockaddr &address) {
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
    enter(State::Bound);
    return {};
}

void TcpId::destroy_queue_pair() {
    const bool ends = qp != nullptr;
    if (state_.load() == State::Connecting && !inherited()) {
        end_handshake();
    }
    CmId::destroy_queue_pair();
    if (ends && state_.load() == State::Connected && !inherited()) {
        connection_ended();  // the queue pair ended without an event, so a thread that waits for one gets it
                             // now
    }
}

// It is called before the program can have the identity: with a request before the program gets its id, with
// a reply before the connection is established.
void TcpId::keep_proof(std::unique_ptr<TlsProof> proof) {
    if (proof != nullptr) {
        proof_ = std::move(proof);
        base::set_shared(identity_, proof_->identity().c_str(), std::memory_order_release);
    }
}

base::Result<bool> TcpId::peer_is_known(TlsReading &files) const {
    if (identity() == nullptr) {
        return base::failure(EINVAL);
    }
    const OpenSslErrors own;
    const auto known = proof_->still_holds(files);
    if (known && !*known) {
        BASE_LOG(Warning, "%s would be refused now: %s", tcp::text_of(peer()).c_str(), proof_->text());
    }
    return known;
}

int TcpId::connection_socket() const {
    if (link_) {
        return link_->descriptor();
    }
    return listener_ ? listener_->socket() : CmId::connection_socket();
}

TcpId::HeldQueuePair::HeldQueuePair(AnyQueuePair::Hold found) : hold_{std::move(found)} {
    if (hold_.get() != nullptr && hold_.get()->qp_base.qp_type == IBV_QPT_RC) {
        queue_pair_ = static_cast<QueuePair *>(hold_.get());
    }
}

TcpId::HeldQueuePair TcpId::queue_pair() const {
    return HeldQueuePair{AnyQueuePair::find(qp_num_)};
}

base::Result<TcpId::HeldQueuePair> TcpId::choose_queue_pair(std::uint32_t number) {
    const std::uint32_t before = std::exchange(qp_num_, qp == nullptr ? number : qp->qp_num);
    HeldQueuePair chosen = queue_pair();
    if (!chosen || !chosen->idle()) {
        qp_num_ = before;
        return base::failure(EINVAL);
    }
    return chosen;
}

base::Result<void> TcpId::disconnect_when_sent() {
    if (const HeldQueuePair connected = queue_pair();
        !connected || !connected->disconnect(*this, QueuePair::When::Sent)) {
        return base::failure(EINVAL);
    }
    return {};
}

base::Result<void> TcpId::disconnect() {
    if (const HeldQueuePair connected = queue_pair(); !connected || !connected->disconnect(*this)) {
        return base::failure(EINVAL);
    }
    if (event != nullptr &&
        (event->event == RDMA_CM_EVENT_DISCONNECTED || event->event == RDMA_CM_EVENT_CONNECT_ERROR)) {
        return {};  // for a synchronous id the end has no second event
    }
    return wait_if_synchronous();
}

void TcpId::connection_established() {
    const State before = enter(State::Connected);
    awaited_no_more();
    if (before != State::Responded) {  // then rdma_establish() tells the program
        push_outcome(RDMA_CM_EVENT_ESTABLISHED);
    }
}

void TcpId::connection_ended() {
    awaited_no_more();
    if (enter(State::Closed) == State::Connected) {
        push(RDMA_CM_EVENT_DISCONNECTED, 0, std::move(end_));
    } else {
        push(RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET, std::move(end_));
    }
}

void TcpId::end_handshake() {
    if (handshake_group_) {
        const base::Lock lock{handshake_group_->mutex()};
        handshake_.reset();
        meeting_.reset();
    }
}

void TcpId::handshake_done(Handshake &handshake, const wire::MpaFrame &frame) {
    handshake_group_->mutex().assert_held();
    if (handshake.role() == Handshake::Role::Responder) {
        adopted_request_arrived(handshake, frame);
    } else {
        reply_arrived(handshake, frame);
    }
    handshake_.reset();
}

// As in rdma_cm for an iWARP connection, refused or reset is a rejection, and no answer is unreachable.
void TcpId::handshake_failed(Handshake &handshake, int error) {
    handshake_group_->mutex().assert_held();
    if (handshake.role() == Handshake::Role::Initiator) {
        meeting_.reset();
        enter(State::Closed);
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

void TcpId::push_outcome(rdma_cm_event_type type) {
    outcome_->param.conn.responder_resources = static_cast<std::uint8_t>(parameters_.ird);
    outcome_->param.conn.initiator_depth = static_cast<std::uint8_t>(parameters_.ord);
    outcome_->set_private_data(reply_data_);
    push(type, 0, std::move(outcome_));
}

}  // namespace soft
