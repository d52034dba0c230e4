// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_req: a connection that is asked for, here or by a peer, and not answered yet.
#include "librpma/conn_req.hpp"

#include <fcntl.h>

#include <cerrno>

#include "librpma/accessor.hpp"

namespace {

// What rdma_cm carries with RDMA_PS_TCP; the soft device's requests carry as much as its answers.
constexpr unsigned most_private_data_of_request = 56;
constexpr unsigned most_private_data_of_answer = 196;

rdma_conn_param connection_parameters(const librpma::ConnectionParameters &configured,
                                      const rpma_conn_private_data *data) {
    rdma_conn_param parameters{};
    if (data != nullptr) {
        parameters.private_data = data->ptr;
        parameters.private_data_len = data->len;
    }
    parameters.responder_resources = RDMA_MAX_RESP_RES;
    parameters.initiator_depth = RDMA_MAX_INIT_DEPTH;
    parameters.flow_control = 1;
    parameters.retry_count = configured.retry_count;
    parameters.rnr_retry_count = configured.rnr_retry_count;
    return parameters;
}

}  // namespace

librpma::Result<std::unique_ptr<rpma_conn_req>> rpma_conn_req::create(
    const rpma_peer &peer, const librpma::ConnectionParameters &parameters) {
    auto req = librpma::make<rpma_conn_req>(peer, parameters);
    if (req == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    auto channel = librpma::make_channel(peer.provider());
    if (!channel) {
        return librpma::Failure{channel.error()};
    }
    req->connection_.event_channel = std::move(*channel);
    return req;
}

librpma::Result<std::unique_ptr<rpma_conn_req>> rpma_conn_req::begin(
    const rpma_peer &peer, const char *address, const char *port,
    const librpma::ConnectionParameters &parameters) {
    const verbs::Provider &provider = peer.provider();
    const auto no_way = [&](const char *step, const char *reason) {
        BASE_LOG(Error, "no way from %s to %s:%s: %s: %s", peer.pd()->context->device->name, address, port,
                 step, reason);
        return librpma::Failure{RPMA_E_PROVIDER};
    };
    auto req = create(peer, parameters);
    if (!req) {
        return req;
    }
    const auto info = verbs::look_up(provider, address, port, verbs::Side::Remote);
    if (!info) {
        return no_way("rdma_getaddrinfo", info.error());
    }
    rdma_cm_id *id = nullptr;
    if (provider.create_id((*req)->connection_.event_channel.get(), &id, nullptr, RDMA_PS_TCP) != 0) {
        return no_way("rdma_create_id", librpma::error_text(errno));
    }
    (*req)->connection_.id = {provider, id};
    std::uint8_t ack_timeout = parameters.ack_timeout;
    if (ack_timeout != 0 && provider.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
                                                sizeof(ack_timeout)) != 0) {
        return no_way("rdma_set_option(acknowledge timeout)", librpma::error_text(errno));
    }
    sockaddr_storage source = parameters.source;
    const bool from_there = source.ss_family != AF_UNSPEC;
    if (provider.resolve_addr(id, from_there ? reinterpret_cast<sockaddr *>(&source) : (*info)->ai_src_addr,
                              (*info)->ai_dst_addr, parameters.timeout_ms) != 0) {
        return no_way("rdma_resolve_addr", librpma::error_text(errno));
    }
    BASE_LOG(Notice, "Requesting a connection to %s:%s", address, port);
    return req;
}

librpma::Result<std::unique_ptr<rpma_conn_req>> rpma_conn_req::ask(
    const rpma_peer &peer, const char *address, const char *port,
    const librpma::ConnectionParameters &parameters) {
    auto req = begin(peer, address, port, parameters);
    while (req && !(*req)->ready()) {
        // The channel blocks; a signal may end the wait.
        if (const int result = (*req)->step(); result != 0 && result != RPMA_E_AGAIN) {
            return librpma::Failure{result};
        }
    }
    return req;
}

librpma::Result<std::unique_ptr<rpma_conn_req>> rpma_conn_req::adopt(
    const rpma_peer &peer, int fd, const librpma::ConnectionParameters &parameters) {
    if (peer.provider().adopt == nullptr) {
        BASE_LOG(Error, "%s takes no TCP connection over: the soft device does",
                 peer.pd()->context->device->name);
        return librpma::Failure{RPMA_E_NOSUPP};
    }
    auto req = create(peer, parameters);
    if (!req) {
        return req;
    }
    if (const int result = (*req)->wait_on_descriptor(); result != 0) {
        return librpma::Failure{result};
    }
    rdma_cm_id *id = nullptr;
    if (peer.provider().adopt((*req)->connection_.event_channel.get(), fd, nullptr, &id) != 0) {
        const int number = errno;
        BASE_LOG(Error, "descriptor %d cannot become a connection: %s (expected a connected TCP socket)", fd,
                 librpma::error_text(number));
        return librpma::Failure{number == EINVAL ? RPMA_E_INVAL : RPMA_E_PROVIDER};
    }
    (*req)->connection_.id = {peer.provider(), id};
    return req;
}

librpma::Result<std::unique_ptr<rpma_conn_req>> rpma_conn_req::answer(
    const rpma_peer &peer, verbs::Id id, librpma::PrivateData private_data,
    const librpma::ConnectionParameters &parameters) {
    auto req = librpma::make<rpma_conn_req>(peer, parameters);
    if (req == nullptr) {
        peer.provider().reject(id.get(), nullptr, 0);
        return librpma::Failure{RPMA_E_NOMEM};
    }
    req->connection_.id = std::move(id);
    // Off the endpoint's channel at once: the request may outlive the endpoint.
    int result = req->connection_.make_event_channel(peer.provider(), parameters.events);
    if (result == 0) {
        result = req->arrived(std::move(private_data));
    }
    if (result != 0) {
        req->passive_ = true;
        return librpma::Failure{result};
    }
    return req;
}

int rpma_conn_req::arrived(librpma::PrivateData private_data) {
    passive_ = true;
    connection_.private_data = std::move(private_data);
    return make_ready();
}

int rpma_conn_req::make_ready() {
    const int result = connection_.make_queues(peer_, parameters_);
    ready_ = result == 0;
    return result;
}

int rpma_conn_req::set_blocking(bool blocking) const {
    const int flags = ::fcntl(event_fd(), F_GETFL);
    if (flags == -1 ||
        ::fcntl(event_fd(), F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) != 0) {
        return librpma::refused("fcntl of an event channel", errno);
    }
    return 0;
}

int rpma_conn_req::wait_on_descriptor() {
    waits_on_descriptor_ = true;
    return set_blocking(false);
}

int rpma_conn_req::step() {
    const verbs::Provider &provider = peer_.provider();
    auto event = librpma::next_event(provider, connection_.event_channel.get());
    if (!event) {
        return event.error() == RPMA_E_NO_EVENT ? RPMA_E_AGAIN : event.error();
    }
    switch ((*event)->event) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            event->reset();
            if (provider.resolve_route(connection_.id.get(), parameters_.timeout_ms) != 0) {
                return librpma::refused("rdma_resolve_route", errno);
            }
            return 0;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            event->reset();
            return make_ready();
        case RDMA_CM_EVENT_CONNECT_REQUEST: {
            auto private_data = librpma::PrivateData::copy((*event)->param.conn);
            event->reset();
            return private_data ? arrived(std::move(*private_data)) : private_data.error();
        }
        default:
            BASE_LOG(Error, "no connection: %s, %s", provider.event_str((*event)->event),
                     librpma::error_text((*event)->status < 0 ? -(*event)->status : (*event)->status));
            return RPMA_E_PROVIDER;
    }
}

int rpma_conn_req::proceed() {
    while (!ready_) {
        if (const int result = step(); result != 0) {
            return result;
        }
    }
    return 0;
}

// All that can fail here comes before the answer: a peer that is accepted has a connection.
librpma::Result<std::unique_ptr<rpma_conn>> rpma_conn_req::prepare_connection() {
    if (!ready_) {
        BASE_LOG(Error, "the request cannot be connected yet (rpma_conn_req_proceed)");
        return librpma::Failure{RPMA_E_INVAL};
    }
    int result = waits_on_descriptor_ ? set_blocking(true) : 0;
    if (result == 0 && parameters_.events != nullptr && connection_.event_channel) {
        auto own = std::move(connection_.event_channel);
        result = connection_.make_event_channel(peer_.provider(), parameters_.events);
        if (result != 0) {
            connection_.event_channel = std::move(own);  // the id is still there
        }
    }
    if (result != 0) {
        return librpma::Failure{result};
    }
    auto conn = librpma::make<rpma_conn>(peer_, parameters_);
    if (conn == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    return conn;
}

librpma::Result<std::unique_ptr<rpma_conn>> rpma_conn_req::connect(const rpma_conn_private_data *data) {
    auto conn = prepare_connection();
    if (!conn) {
        return conn;
    }
    const verbs::Provider &provider = peer_.provider();
    rdma_conn_param parameters = connection_parameters(parameters_, data);
    rdma_cm_id *const id = connection_.id.get();
    (*conn)->begin(std::move(connection_));
    if ((passive_ ? provider.accept(id, &parameters) : provider.connect(id, &parameters)) != 0) {
        const int number = errno;
        connection_ = (*conn)->give_back();
        BASE_LOG(Error, "%s (%u bytes of private data, of which rdma_cm takes %u) failed: %s",
                 passive_ ? "rdma_accept" : "rdma_connect", unsigned{parameters.private_data_len},
                 passive_ ? most_private_data_of_answer : most_private_data_of_request,
                 librpma::error_text(number));
        return librpma::Failure{RPMA_E_PROVIDER};
    }
    return conn;
}

int rpma_conn_req_new(struct rpma_peer *peer, const char *addr, const char *port,
                      const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req_ptr) {
    if (peer == nullptr || addr == nullptr || port == nullptr || req_ptr == nullptr) {
        return RPMA_E_INVAL;
    }
    return librpma::give(rpma_conn_req::ask(*peer, addr, port, librpma::parameters_of(cfg)), req_ptr);
}

int rpma_conn_req_begin(struct rpma_peer *peer, const char *addr, const char *port,
                        const struct rpma_conn_cfg *cfg, struct rpma_conn_req **req_ptr) {
    if (peer == nullptr || addr == nullptr || port == nullptr || req_ptr == nullptr) {
        return RPMA_E_INVAL;
    }
    auto req = rpma_conn_req::begin(*peer, addr, port, librpma::parameters_of(cfg));
    if (req) {
        if (const int result = (*req)->wait_on_descriptor(); result != 0) {
            return result;
        }
    }
    return librpma::give(std::move(req), req_ptr);
}

int rpma_conn_req_adopt(struct rpma_peer *peer, int fd, const struct rpma_conn_cfg *cfg,
                        struct rpma_conn_req **req_ptr) {
    if (peer == nullptr || fd < 0 || req_ptr == nullptr) {
        return RPMA_E_INVAL;
    }
    return librpma::give(rpma_conn_req::adopt(*peer, fd, librpma::parameters_of(cfg)), req_ptr);
}

int rpma_conn_req_get_fd(const struct rpma_conn_req *req, int *fd) {
    if (req == nullptr || fd == nullptr) {
        return RPMA_E_INVAL;
    }
    if (!req->waits_on_descriptor()) {
        return RPMA_E_NOSUPP;
    }
    *fd = req->event_fd();
    return 0;
}

int rpma_conn_req_proceed(struct rpma_conn_req *req) {
    return req == nullptr ? RPMA_E_INVAL : req->proceed();
}

int rpma_conn_req_delete(struct rpma_conn_req **req_ptr) {
    return librpma::destroy(req_ptr);
}

int rpma_conn_req_connect(struct rpma_conn_req **req_ptr, const struct rpma_conn_private_data *pdata,
                          struct rpma_conn **conn_ptr) {
    if (req_ptr == nullptr || *req_ptr == nullptr) {
        return RPMA_E_INVAL;
    }
    const std::unique_ptr<rpma_conn_req> req{std::exchange(*req_ptr, nullptr)};
    if (conn_ptr == nullptr || (pdata != nullptr && (pdata->ptr == nullptr || pdata->len == 0))) {
        return RPMA_E_INVAL;
    }
    return librpma::give(req->connect(pdata), conn_ptr);
}

int rpma_conn_req_get_private_data(const struct rpma_conn_req *req, struct rpma_conn_private_data *pdata) {
    if (req == nullptr || pdata == nullptr) {
        return RPMA_E_INVAL;
    }
    *pdata = req->private_data();
    return 0;
}

int rpma_conn_req_get_local_addr(const struct rpma_conn_req *req, struct sockaddr_storage *addr) {
    return librpma::get_address(req, &rdma_addr::src_storage, addr);
}

int rpma_conn_req_get_peer_addr(const struct rpma_conn_req *req, struct sockaddr_storage *addr) {
    return librpma::get_address(req, &rdma_addr::dst_storage, addr);
}
