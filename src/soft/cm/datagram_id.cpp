// SPDX-License-Identifier: BSD-3-Clause
#include "soft/cm/datagram_id.hpp"

#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "base/log.hpp"
#include "soft/device/device.hpp"

namespace soft {

namespace {

constexpr std::uint8_t path_hops = 64;  // more than one, so that an address handle made of it uses the GID

std::span<const std::byte> private_data_of(const rdma_conn_param *parameters) {
    if (parameters == nullptr) {
        return {};
    }
    return {static_cast<const std::byte *>(parameters->private_data), parameters->private_data_len};
}

bool too_long(std::span<const std::byte> private_data, std::size_t most) {
    if (private_data.size() > most) {
        BASE_LOG(Error, "private data of %zu bytes: the most is %zu", private_data.size(), most);
    }
    return private_data.size() > most;
}

std::uint16_t port_of(const sockaddr &address) {
    return udp::endpoint_of(address).port;
}

}  // namespace

DatagramId::DatagramId(EventChannel *event_channel, void *id_context, rdma_port_space port_space)
    : CmId{event_channel, id_context} {
    ps = port_space;
    qp_type = IBV_QPT_UD;
}

DatagramId::~DatagramId() {
    if (inherited()) {
        return;
    }
    if (handshake_group_) {
        const base::Lock lock{handshake_group_->mutex()};
        stop_listening();
        if (state_.load() == State::Connecting) {
            handshake_group_->remove(*this, socket_.get());
            enter(State::Closed);
        }
    }
    if (state_.load() == State::Requested && !reject({})) {
        BASE_LOG(Debug, "a request that was dropped could not be rejected");
    }
    for (const Membership &membership : memberships_) {
        detach(membership);
    }
}

// A port that is in use is reported only by listen(): no other function needs the port, and rsockets bind an
// id to the port of a UDP socket of their own.
base::Result<void> DatagramId::bind(const sockaddr &address) {
    if (state_.load() != State::Idle) {
        return base::failure(EINVAL);
    }
    auto socket = udp::bound(address, options_);
    if (socket) {
        socket_ = std::move(*socket);
        if (auto found = set_source(udp::address_of(udp::local_endpoint(socket_.get()))); !found) {
            socket_.reset();
            return found;
        }
    } else if (socket.error().number == EADDRINUSE && port_of(address) != 0) {
        if (auto found = set_source(tcp::copy_of(address)); !found) {
            return found;
        }
    } else {
        return std::unexpected{socket.error()};
    }
    enter(State::Bound);
    return {};
}

base::Result<void> DatagramId::resolve_route() {
    path_ = {};
    path_.sgid = route.addr.addr.ibaddr.sgid;
    path_.dgid = route.addr.addr.ibaddr.dgid;
    path_.pkey = route.addr.addr.ibaddr.pkey;
    path_.hop_limit = path_hops;
    path_.mtu = IBV_MTU_4096;
    route.path_rec = &path_;
    route.num_paths = 1;
    return CmId::resolve_route();
}

void DatagramId::queue_pair_created() {
    qp_num_ = qp->qp_num;
    datagram_qp()->make_ready(RDMA_UDP_QKEY);
}

// ---- the side that asks ----

base::Result<void> DatagramId::connect(const rdma_conn_param *parameters) {
    const auto private_data = private_data_of(parameters);
    if (state_.load() != State::RouteResolved || too_long(private_data, wire::lookup_max_private_bytes)) {
        return base::failure(EINVAL);
    }
    if (!socket_) {
        const udp::Endpoint here{.gid = source_gid(),
                                 .interface = udp::endpoint_of(route.addr.src_addr).interface};
        const tcp::Address address = udp::address_of(here);
        auto socket = udp::bound(reinterpret_cast<const sockaddr &>(address), {});
        if (!socket) {
            return std::unexpected{socket.error()};
        }
        socket_ = std::move(*socket);
    }
    if (auto connected = udp::connect(socket_.get(), udp::endpoint_of(route.addr.dst_addr)); !connected) {
        return connected;
    }
    (void)set_source(udp::address_of(udp::local_endpoint(socket_.get())));
    if (getrandom(&token_, sizeof(token_), 0) != sizeof(token_)) {
        return base::last_failure();
    }
    outcome_->param.ud.ah_attr = address_attributes(device(), source_gid(), route.addr.addr.ibaddr.dgid);
    request_bytes_ = wire::encode(wire::LookupRequest{.token = token_, .private_data = private_data});
    handshake_group_ = channel_group();
    {
        const base::Lock lock{handshake_group_->mutex()};
        enter(State::Connecting);
        handshake_group_->add(*this, socket_.get(), {.readable = true});
        ask();
    }
    return wait_if_synchronous();
}

// A lost request is sent again; the errors of the network are read with the replies.
void DatagramId::ask() {
    ++attempts_;
    (void)send(socket_.get(), request_bytes_.data(), request_bytes_.size(), MSG_NOSIGNAL);
    handshake_group_->set_deadline(*this, base::Clock::now() + limits::in_force().lookup_interval);
}

void DatagramId::expire() {
    handshake_group_->mutex().assert_held();
    if (attempts_ < limits::lookup_attempts) {
        ask();
    } else {
        stop_asking(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, {});
    }
}

void DatagramId::stop_asking(rdma_cm_event_type outcome, int status, const wire::LookupReply &reply) {
    handshake_group_->remove(*this, socket_.get());
    enter(outcome == RDMA_CM_EVENT_ESTABLISHED ? State::Connected : State::Closed);
    outcome_->set_private_data(reply.private_data);
    outcome_->param.ud.qp_num = reply.qp_num;
    outcome_->param.ud.qkey = reply.qkey;
    push(outcome, status, std::move(outcome_));
}

// ---- the side that is asked ----

base::Result<void> DatagramId::listen(int) {
    if (state_.load() != State::Bound) {
        return base::failure(EINVAL);
    }
    if (!socket_) {
        auto socket = udp::bound(route.addr.src_addr, options_);
        if (!socket) {
            return std::unexpected{socket.error()};
        }
        socket_ = std::move(*socket);
    }
    service_ = std::make_shared<LookupService>(std::move(socket_));
    handshake_group_ = channel_group();
    const base::Lock lock{handshake_group_->mutex()};
    enter(State::Listening);
    handshake_group_->add(*this, service_->socket(), {.readable = true});
    return {};
}

void DatagramId::stop_listening() {
    if (state_.load() == State::Listening) {
        handshake_group_->remove(*this, service_->socket());
        enter(State::Closed);
    }
}

void DatagramId::progress() {
    handshake_group_->mutex().assert_held();
    std::array<std::byte, wire::lookup_request_bytes> buffer;
    for (int round = 0; round < limits::datagrams_in_a_turn; ++round) {
        const bool listens = state_.load() == State::Listening;
        if (!listens && state_.load() != State::Connecting) {
            return;
        }
        int error = 0;
        const auto arrival = udp::receive(listens ? service_->socket() : socket_.get(), buffer, error);
        if (!arrival) {
            if (!listens && error != 0) {
                stop_asking(RDMA_CM_EVENT_UNREACHABLE, -error, {});
            }
            return;
        }
        const auto datagram = std::span{buffer}.first(arrival->bytes);
        if (listens) {
            if (const auto request = wire::decode_lookup_request(datagram)) {
                try {
                    request_arrived(*arrival, *request);
                } catch (const std::bad_alloc &) {
                    BASE_LOG_PEER(Error, "request dropped: out of memory");
                }
            }
        } else if (const auto reply = wire::decode_lookup_reply(datagram); reply && reply->token == token_) {
            const bool found = reply->status == wire::LookupStatus::Found;
            stop_asking(found ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE,
                        static_cast<int>(reply->status), *reply);
        }
    }
}

void DatagramId::request_arrived(const udp::Arrival &arrival, const wire::LookupRequest &request) {
    const Lookup lookup{.from = arrival.source, .to = arrival.destination, .token = request.token};
    if (count_.unfetched_requests() >= limits::in_force().max_unfetched_requests ||
        udp::is_multicast(lookup.to)) {
        return;
    }
    const tcp::Address here = udp::address_of(
        {.gid = lookup.to, .port = port_of(route.addr.src_addr), .interface = lookup.from.interface});
    // The steps that need memory come first; a request that is dropped comes again.
    std::unique_ptr<DatagramId> child{new DatagramId{nullptr, context, ps}};
    child->service_ = service_;
    child->lookup_ = lookup;
    if (!child->set_source(here) || child->verbs == nullptr) {
        return;
    }
    const tcp::Address peer = udp::address_of(lookup.from);
    child->set_destination(reinterpret_cast<const sockaddr &>(peer));
    auto made = std::make_unique<Event>();
    if (!service_->begin(lookup)) {
        return;
    }
    child->enter(State::Requested);  // from here on its destructor rejects, unless it is delivered
    if (!child->has_device(peer)) {
        return;
    }
    made->event = RDMA_CM_EVENT_CONNECT_REQUEST;
    made->id = child.get();
    made->listen_id = this;
    made->counted = &count_;
    made->set_private_data(request.private_data);
    count_.request_waits();
    // The lock is held because the listener may just be migrated; the child goes to the same channel as its
    // event.
    const base::Lock lock{mutex_};
    child.release()->arrived_on(*channel_);
    channel_->push(std::move(made));
}

base::Result<void> DatagramId::accept(const rdma_conn_param *parameters) {
    const auto private_data = private_data_of(parameters);
    if (state_.load() != State::Requested || too_long(private_data, wire::reply_max_private_bytes) ||
        (qp == nullptr && (parameters == nullptr || parameters->qp_num >= multicast_qp_num))) {
        return base::failure(EINVAL);
    }
    const int error = service_->answer(lookup_, {.qp_num = qp != nullptr ? qp->qp_num : parameters->qp_num,
                                                 .qkey = RDMA_UDP_QKEY,
                                                 .private_data = private_data});
    if (error != 0) {
        return base::failure(error);
    }
    enter(State::Connected);
    return {};
}

base::Result<void> DatagramId::reject(std::span<const std::byte> private_data) {
    if (state_.load() != State::Requested || too_long(private_data, wire::reply_max_private_bytes)) {
        return base::failure(EINVAL);
    }
    enter(State::Closed);
    const int error =
        service_->answer(lookup_, {.status = wire::LookupStatus::Rejected, .private_data = private_data});
    if (error != 0) {
        return base::failure(error);
    }
    return {};
}

base::Result<void> DatagramId::disconnect() {
    return base::failure(EINVAL);  // nothing is connected
}

}  // namespace soft
