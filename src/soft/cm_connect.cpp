// SPDX-License-Identifier: BSD-3-Clause
// soft/cm: the initiator's side.
#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/log.hpp"
#include "soft/cm.hpp"
#include "soft/environment.hpp"

namespace soft {

std::uint16_t granted_depth(std::uint8_t wanted) {
    return std::min(wanted, limits::max_rd_atomic);
}

rdma_conn_param wanted_parameters(const rdma_conn_param *given) {
    if (given != nullptr) {
        return *given;
    }
    rdma_conn_param most{};
    most.responder_resources = RDMA_MAX_RESP_RES;
    most.initiator_depth = RDMA_MAX_INIT_DEPTH;
    return most;
}

bool crc_wanted() {
    static const bool wanted = crc_asked_for(std::getenv("SOFTRDMA_CRC"));
    return wanted;
}

base::Result<void> CmId::connect(const rdma_conn_param *parameters) {
    const rdma_conn_param wanted = wanted_parameters(parameters);
    if (state_.load() != State::RouteResolved || qp == nullptr) {
        return base::failure(EINVAL);
    }
    if (wanted.private_data_len > limits::max_private_bytes) {
        BASE_LOG(Error, "private data of %u bytes: the most is %zu", wanted.private_data_len,
                 limits::max_private_bytes);
        return base::failure(EINVAL);
    }
    auto socket = tcp::connect(std::move(socket_), route.addr.dst_addr);
    if (!socket) {
        return std::unexpected{socket.error()};
    }
    set_source(tcp::local_address(socket->get()));
    parameters_ = {.initiator = true,
                   .crc = crc_wanted(),
                   .ird = granted_depth(wanted.responder_resources),
                   .ord = granted_depth(wanted.initiator_depth)};
    // Peer-to-peer, so that a server may speak first: our first FPDU, an empty WRITE, tells it that we are
    // ready.
    const wire::MpaFrame request{
        .crc = parameters_.crc,
        .soft_operations = true,
        .peer_to_peer = true,
        .rtr_write = true,
        .ird = parameters_.ird,
        .ord = parameters_.ord,
        .private_data = {static_cast<const std::byte *>(wanted.private_data), wanted.private_data_len},
    };
    state_.store(State::Connecting);
    {
        const std::scoped_lock lock{mutex_};
        handshake_group_ = channel_->group();
    }
    {
        const std::scoped_lock lock{handshake_group_->mutex()};
        begin_handshake(std::move(*socket), Handshake::Role::Initiator, &request);
    }
    return wait_if_synchronous();
}

void CmId::reply_arrived(Handshake &handshake, const wire::MpaFrame &reply) {
    const auto peer = tcp::text_of(tcp::peer_address(handshake.socket()));
    if (reply.reject) {
        auto made = std::make_unique<Event>();
        made->event = RDMA_CM_EVENT_REJECTED;
        made->status = -ECONNREFUSED;
        made->id = this;
        made->set_private_data(reply.private_data);
        state_.store(State::Closed);
        push(std::move(made));
        return;
    }
    const bool deeper_than_we_serve = reply.enhanced && reply.ord > limits::max_rd_atomic;
    if (reply.markers || reply.revision > 2 || deeper_than_we_serve) {
        BASE_LOG(Warning, "no connection with %s: its reply wants %s", peer.c_str(),
                 reply.markers          ? "MPA markers"
                 : deeper_than_we_serve ? "more reads at once than we serve"
                                        : "an MPA revision above 2");
        state_.store(State::Closed);
        push(RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO);
        return;
    }
    parameters_.crc = parameters_.crc || reply.crc;
    parameters_.soft_peer = reply.soft_operations;
    if (reply.enhanced) {
        parameters_.ord = std::min(parameters_.ord, reply.ird);
        parameters_.ird = std::max(parameters_.ird, reply.ord);
        parameters_.ready_to_receive = reply.peer_to_peer && reply.rtr_write;
    }
    reply_data_.assign(reply.private_data.begin(), reply.private_data.end());
    queue_pair()->start(handshake.take_socket(), parameters_, this);
}

}  // namespace soft
