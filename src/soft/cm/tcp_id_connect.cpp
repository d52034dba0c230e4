// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/tcp_id_connect: the initiator's side of an id of RDMA_PS_TCP.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/log.hpp"
#include "soft/cm/tcp_id.hpp"
#include "soft/cm/wanted.hpp"
#include "soft/ground/interfaces.hpp"
#include "soft/progress/engines.hpp"
#include "soft/transport/batch.hpp"

namespace soft {

base::Result<void> TcpId::connect(const rdma_conn_param *parameters) {
    const auto checked = wanted_parameters(parameters);
    if (!checked) {
        return std::unexpected{checked.error()};
    }
    const rdma_conn_param &wanted = *checked;
    if (state_.load() != State::RouteResolved) {
        return base::failure(EINVAL);
    }
    const auto chosen = choose_queue_pair(wanted.qp_num);
    if (!chosen) {
        return std::unexpected{chosen.error()};
    }
    if (auto may = may_be_secure(*tls_, *(*chosen)->group()); !may) {
        return may;
    }
    tcp::Options options = options_;
    options.within_host = is_here(peer());
    auto socket = tcp::connect(std::move(socket_), route.addr.dst_addr, options);
    if (!socket) {
        return std::unexpected{socket.error()};
    }
    const tcp::Address here = tcp::local_address(socket->get());
    (void)set_source(here);
    meeting_ = Meeting::begin(here, peer());
    parameters_ = {.initiator = true,
                   .crc = crc_wanted(*tls_),
                   .ack_timeout = ack_timeout_,
                   .ird = granted_depth(wanted.responder_resources),
                   .ord = granted_depth(wanted.initiator_depth)};
    // The request asks for the peer-to-peer mode, so that a server may speak first. The initiator's first
    // FPDU, an empty WRITE, tells the server that this end is ready.
    const wire::MpaFrame request{
        .crc = parameters_.crc,
        .soft_operations = true,
        .peer_to_peer = true,
        .rtr_write = true,
        .ird = parameters_.ird,
        .ord = parameters_.ord,
        .private_data = {static_cast<const std::byte *>(wanted.private_data), wanted.private_data_len},
    };
    enter(State::Connecting);
    handshake_group_ = channel_group();
    {
        const base::Lock lock{handshake_group_->mutex()};
        handshake_ = Handshake::begin(*this, handshake_group_, std::move(*socket), peer(), tls_, &request);
    }
    return wait_if_synchronous();
}

namespace {

// Tells the responder that this end cannot continue with its reply, as RFC 6581 section 9 requires. A new
// link takes so few bytes at once.
void terminate(std::unique_ptr<Link> link, base::Origin peer, bool crc, const wire::TerminateCode &code) {
    const auto body = wire::encode(code);
    Batch batch;
    if (crc) {
        batch.use_crc();
    }
    batch.add_copied({.opcode = wire::Opcode::Terminate,
                      .queue = wire::Queue::Terminate,
                      .msn = 1,
                      .payload_bytes = body.size()},
                     body);
    (void)batch.send(*link);
    link->finish();
    Engines::instance().drains().add(std::move(link), peer);
}

}  // namespace

void TcpId::rejected(const Handshake &handshake, const wire::MpaFrame &reply) {
    meeting_.reset();
    if (reply.soft_operations) {
        BASE_LOG_PEER(Warning, "no connection with %s: it is out of file descriptors",
                      tcp::text_of(handshake.peer()).c_str());
    }
    outcome_->param.conn.responder_resources = told_depth(reply.ord);
    outcome_->param.conn.initiator_depth = told_depth(reply.ird);
    outcome_->set_private_data(reply.private_data);
    enter(State::Closed);
    push(RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, std::move(outcome_));
}

void TcpId::fail_to_connect(int error) {
    meeting_.reset();
    enter(State::Closed);
    push(RDMA_CM_EVENT_CONNECT_ERROR, -error, std::move(outcome_));
}

void TcpId::reply_arrived(Handshake &handshake, const wire::MpaFrame &reply) {
    if (reply.reject) {
        rejected(handshake, reply);
        return;
    }
    keep_proof(handshake.take_proof());
    // The greatest depth says that the programs agree on depths themselves (RFC 6581 section 9.1).
    const bool depth_given = reply.enhanced && reply.ord != wire::mpa_max_depth;
    const bool deeper_than_we_serve = depth_given && reply.ord > limits::max_rd_atomic;
    const bool another_rtr = reply.enhanced && reply.peer_to_peer && !reply.rtr_write;
    if (reply.markers || reply.revision > 2 || deeper_than_we_serve || another_rtr) {
        BASE_LOG_PEER(Warning, "no connection with %s: its reply wants %s",
                      tcp::text_of(handshake.peer()).c_str(),
                      reply.markers          ? "MPA markers"
                      : reply.revision > 2   ? "an MPA revision above 2"
                      : deeper_than_we_serve ? "more reads at once than we serve"
                                             : "another first FPDU than an empty write");
        if (!reply.markers && reply.revision <= 2) {
            terminate(
                handshake.take_link(), base::origin_of(handshake.peer()), parameters_.crc || reply.crc,
                deeper_than_we_serve ? wire::terminate::insufficient_ird : wire::terminate::no_matching_rtr);
        }
        fail_to_connect(EPROTO);
        return;
    }
    parameters_.crc = parameters_.crc || reply.crc;
    parameters_.soft_peer = reply.soft_operations;
    if (reply.enhanced) {
        parameters_.ord = std::min(parameters_.ord, reply.ird);
        if (depth_given) {
            parameters_.ird = std::max(parameters_.ird, reply.ord);
        }
        parameters_.ready_to_receive = reply.peer_to_peer && reply.rtr_write;
    }
    reply_data_.assign(reply.private_data.begin(), reply.private_data.end());
    const HeldQueuePair chosen = queue_pair();
    if (!chosen) {
        fail_to_connect(ECONNRESET);  // the program destroyed the queue pair meanwhile
        return;
    }
    auto link =
        link_behind_reply(handshake.take_link(), handshake.peer(), std::exchange(meeting_, nullptr), reply);
    if (!link) {
        fail_to_connect(link.error().number);
        return;
    }
    if (qp == nullptr) {
        link_ = std::move(*link);
        enter(State::Responded);
        push_outcome(RDMA_CM_EVENT_CONNECT_RESPONSE);
        return;
    }
    chosen->start(std::move(*link), peer(), parameters_, this);
}

// The queue pair may be gone by now; then the reply finds none either.
bool TcpId::offers_memory(Handshake &handshake) {
    const HeldQueuePair chosen = queue_pair();
    if (meeting_ && !(chosen && meeting_->offer(secrets_of(handshake.link()), *chosen->group()))) {
        meeting_.reset();
    }
    return meeting_ != nullptr;
}

base::Result<void> TcpId::establish() {
    const HeldQueuePair connected = queue_pair();
    if (qp != nullptr || state_.load() != State::Responded || !connected || !connected->idle()) {
        return base::failure(EINVAL);
    }
    connected->start(std::move(link_), peer(), parameters_, this);
    return {};
}

}  // namespace soft
