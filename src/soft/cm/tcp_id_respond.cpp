// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/tcp_id_respond: the responder's side from the request on: the program accepts or rejects it.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "soft/cm/rejection.hpp"
#include "soft/cm/tcp_id.hpp"
#include "soft/cm/wanted.hpp"

namespace soft {

base::Result<void> TcpId::accept(const rdma_conn_param *parameters) {
    const auto checked = wanted_parameters(parameters);
    if (!checked) {
        return std::unexpected{checked.error()};
    }
    if (auto answered = answer(*checked); !answered) {
        return answered;
    }
    return wait_if_synchronous();
}

base::Result<void> TcpId::answer(const rdma_conn_param &wanted) {
    if (state_.load() != State::Requested) {
        return base::failure(EINVAL);
    }
    const auto connected = choose_queue_pair(wanted.qp_num);
    if (!connected) {
        return std::unexpected{connected.error()};
    }
    if (auto may = may_be_secure(*tls_, *(*connected)->group()); !may) {
        return may;
    }
    const bool peer_to_peer = request_.enhanced && request_.peer_to_peer;
    // The first FPDU is an empty write, unless the peer offers only an empty read. A peer that offers neither
    // may refuse the write.
    const bool by_read = request_.rtr_read && !request_.rtr_write;
    parameters_ = {.ready_to_receive = peer_to_peer,
                   .crc = request_.crc || crc_wanted(*tls_),
                   .soft_peer = request_.soft_operations,
                   .ack_timeout = ack_timeout_,
                   .ird = granted_depth(wanted.responder_resources),
                   .ord = granted_depth(wanted.initiator_depth)};
    if (request_.enhanced) {
        parameters_.ord = std::min(parameters_.ord, request_.ird);
    }
    const wire::MpaFrame reply{
        .crc = parameters_.crc,
        .soft_operations = parameters_.soft_peer,
        .enhanced = request_.enhanced,
        .peer_to_peer = peer_to_peer,
        .rtr_write = peer_to_peer && !by_read,
        .rtr_read = peer_to_peer && by_read,
        .ird = request_.ord == wire::mpa_max_depth ? wire::mpa_max_depth : parameters_.ird,
        .ord = request_.ird == wire::mpa_max_depth ? wire::mpa_max_depth : parameters_.ord,
        .private_data = {static_cast<const std::byte *>(wanted.private_data), wanted.private_data_len},
    };
    if (peer_to_peer) {
        const base::Lock lock{mutex_};
        channel_->await({.qp_num = qp_num_, .origin = base::origin_of(peer())});
    }
    if (auto sent = send_reply(link_, peer(), request_, reply, *(*connected)->group()); !sent) {
        awaited_no_more();
        return sent;
    }
    enter(State::Connecting);
    (*connected)->start(std::move(link_), peer(), parameters_, this);
    if (peer_to_peer) {
        end_surplus_awaited();
    }
    return {};
}

// Connections whose first FPDU does not come keep no places from others, as start-ups do not.
void TcpId::end_surplus_awaited() {
    std::optional<EventChannel::Awaited> surplus;
    base::Clock::time_point until;
    {
        const base::Lock lock{mutex_};
        surplus = channel_->forget_surplus_awaited();
        until = channel_->may_wait_until();
    }
    const HeldQueuePair connection{surplus ? AnyQueuePair::find(surplus->qp_num) : AnyQueuePair::Hold{}};
    if (connection && !connection->give_way(until)) {
        const base::Lock lock{mutex_};
        channel_->waited_in_vain();
    }
}

namespace {

// An event channel takes two descriptors, and so does a completion queue with its channel. A program that
// could not make one of these has closed the first of the two again.
bool can_make_a_channel(int socket) {
    const base::Fd first{fcntl(socket, F_DUPFD_CLOEXEC, 0)};
    return first && base::Fd{fcntl(socket, F_DUPFD_CLOEXEC, 0)};
}

}  // namespace

base::Result<void> TcpId::reject(std::span<const std::byte> private_data) {
    if (state_.load() != State::Requested) {
        return base::failure(EINVAL);
    }
    if (private_data.size() > limits::max_private_bytes) {
        return base::failure(EINVAL);
    }
    enter(State::Closed);
    // Private data is the program's own reason; without it, too few descriptors may be the reason.
    const bool too_few = private_data.empty() && !can_make_a_channel(link_->descriptor());
    return refuse(std::move(link_), peer(), request_, too_few ? Reason::NoDescriptors : Reason::Unsaid,
                  private_data);
}

}  // namespace soft
