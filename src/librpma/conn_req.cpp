// SPDX-License-Identifier: BSD-3-Clause
// librpma/conn_req: a request for a connection, of this side or of a peer, that is not answered yet.
#include "librpma/conn_req.hpp"

#include <fcntl.h>

#include <cerrno>

#include "base/fd.hpp"
#include "librpma/event_channel.hpp"
#include "librpma/events.hpp"

namespace {

// rdma_cm carries this many bytes with RDMA_PS_TCP. The soft device's requests carry as many as its answers.
constexpr unsigned most_private_data_of_request = 56;
constexpr unsigned most_private_data_of_answer = 196;

rdma_conn_param connection_parameters(const librpma::ConnectionConfiguration &configured,
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

rpma_conn_req::Made rpma_conn_req::create(const rpma_peer &peer,
                                          const librpma::ConnectionConfiguration &configuration) {
    if (const int result = librpma::check_events(peer.provider(), configuration.events); result != 0) {
        return librpma::Failure{result};
    }
    auto req = librpma::make<rpma_conn_req>(peer, configuration);
    if (req == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    return req;
}

rdma_event_channel *rpma_conn_req::channel() const {
    return connection_.event_channel ? connection_.event_channel.get() : configuration_.events->channel();
}

// Asks on the channel that the request has, or with its rpma_events.
int rpma_conn_req::ask_on_channel(const char *address, const char *port) {
    const verbs::Provider &provider = peer_->provider();
    const auto no_way = [&](const char *step, const char *reason) {
        BASE_LOG(Error, "no way from %s to %s:%s: %s: %s", peer_->pd()->context->device->name, address, port,
                 step, reason);
        return RPMA_E_PROVIDER;
    };
    const auto info = verbs::look_up(provider, address, port, verbs::Side::Remote);
    if (!info) {
        return no_way("rdma_getaddrinfo", info.error());
    }
    rdma_cm_id *id = nullptr;
    if (provider.cm.create_id(channel(), &id, static_cast<librpma::IdOwner *>(this), RDMA_PS_TCP) != 0) {
        return no_way("rdma_create_id", librpma::error_text(errno));
    }
    connection_.id = {provider, id};
    if (const int result = librpma::use_tls(provider, id, configuration_.tls); result != 0) {
        return result;
    }
    std::uint8_t ack_timeout = configuration_.ack_timeout;
    if (ack_timeout != 0 && provider.cm.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
                                                   &ack_timeout, sizeof(ack_timeout)) != 0) {
        return no_way("rdma_set_option(acknowledge timeout)", librpma::error_text(errno));
    }
    sockaddr_storage source = configuration_.source;
    const bool from_there = source.ss_family != AF_UNSPEC;
    if (provider.cm.resolve_addr(id,
                                 from_there ? reinterpret_cast<sockaddr *>(&source) : (*info)->ai_src_addr,
                                 (*info)->ai_dst_addr, configuration_.timeout_ms) != 0) {
        return no_way("rdma_resolve_addr", librpma::error_text(errno));
    }
    BASE_LOG(Notice, "Requesting a connection to %s:%s", address, port);
    return 0;
}

rpma_conn_req::Made rpma_conn_req::begin(const rpma_peer &peer, const char *address, const char *port,
                                         const librpma::ConnectionConfiguration &configuration) {
    auto req = create(peer, configuration);
    if (!req) {
        return req;
    }
    int result = configuration.events == nullptr ? (*req)->wait_on_own_channel() : 0;
    if (result == 0) {
        const base::Lock lock{(*req)->beginning_};
        result = (*req)->ask_on_channel(address, port);
    }
    return result == 0 ? std::move(req) : librpma::Failure{result};
}

// Until everything is resolved the request has a channel of its own, so that no other thread can take its
// events.
rpma_conn_req::Made rpma_conn_req::ask(const rpma_peer &peer, const char *address, const char *port,
                                       const librpma::ConnectionConfiguration &configuration) {
    auto req = create(peer, configuration);
    if (!req) {
        return req;
    }
    auto channel = librpma::make_channel(peer.provider());
    if (!channel) {
        return librpma::Failure{channel.error()};
    }
    (*req)->connection_.event_channel = std::move(*channel);
    int result = (*req)->ask_on_channel(address, port);
    while (result == 0 && !(*req)->ready()) {
        result = (*req)->step();
        result = result == RPMA_E_AGAIN ? 0 : result;  // the channel blocks; a signal ended the wait
    }
    if (result == 0 && configuration.events != nullptr) {
        auto own = std::move((*req)->connection_.event_channel);
        result = (*req)->connection_.make_event_channel(peer.provider(), configuration.events);
        if (result != 0) {
            (*req)->connection_.event_channel = std::move(own);  // the id is still there
        }
    }
    return result == 0 ? std::move(req) : librpma::Failure{result};
}

rpma_conn_req::Made rpma_conn_req::adopt(const rpma_peer &peer, int fd, int flags,
                                         const librpma::ConnectionConfiguration &configuration) {
    if (!peer.provider().capabilities.speaks_tcp) {
        BASE_LOG(Error, "%s takes no TCP connection over: the soft device does",
                 peer.pd()->context->device->name);
        return librpma::Failure{RPMA_E_NOSUPP};
    }
    const bool initiator = (flags & RPMA_ADOPT_INITIATOR) != 0;
    if (!initiator && configuration.tls != nullptr) {
        BASE_LOG(Error, "a peer's request on a TCP connection that is there has no TLS but that of RPMA_TLS");
        return librpma::Failure{RPMA_E_NOSUPP};
    }
    auto req = create(peer, configuration);
    if (!req) {
        return req;
    }
    if (configuration.events == nullptr) {
        if (const int result = (*req)->wait_on_own_channel(); result != 0) {
            return librpma::Failure{result};
        }
    }
    const base::Lock lock{(*req)->beginning_};
    rdma_cm_id *id = nullptr;
    base::Fd duplicate;
    if ((flags & RPMA_ADOPT_KEEP_FD) != 0) {
        duplicate = base::Fd{::fcntl(fd, F_DUPFD_CLOEXEC, 0)};
        if (!duplicate) {
            return librpma::Failure{errno == EBADF ? RPMA_E_INVAL
                                                   : librpma::log_provider_failure("dup", errno)};
        }
    }
    if (peer.provider().beyond.adopt((*req)->channel(), duplicate ? duplicate.get() : fd,
                                     (initiator ? SOFTRDMA_ADOPT_INITIATOR : 0) |
                                         ((flags & RPMA_ADOPT_SHARE_FD) != 0 ? SOFTRDMA_ADOPT_SHARE_FD : 0),
                                     static_cast<librpma::IdOwner *>(req->get()), &id) != 0) {
        const int number = errno;
        BASE_LOG(Error, "descriptor %d cannot become a connection: %s (expected a connected TCP socket)", fd,
                 librpma::error_text(number));
        return librpma::Failure{number == EINVAL ? RPMA_E_INVAL : RPMA_E_PROVIDER};
    }
    (void)duplicate.release();
    (*req)->connection_.id = {peer.provider(), id};
    if (initiator) {
        int result = librpma::use_tls(peer.provider(), id, configuration.tls);
        result = result == 0 ? (*req)->make_ready() : result;
        if (result != 0) {
            return librpma::Failure{result};
        }
    }
    return req;
}

rpma_conn_req::Made rpma_conn_req::make_bare(const rpma_peer &peer, verbs::Id id,
                                             librpma::PrivateData private_data, const rpma_events *events) {
    auto req = librpma::make<rpma_conn_req>(peer, librpma::ConnectionConfiguration{});
    if (req == nullptr) {
        peer.provider().cm.reject(id.get(), nullptr, 0);
        return librpma::Failure{RPMA_E_NOMEM};
    }
    req->connection_.id = std::move(id);
    req->arrived(std::move(private_data));
    req->state_ = State::Bare;
    // The id leaves the endpoint's channel at once, because the request may outlive the endpoint.
    if (const int result = req->connection_.make_event_channel(peer.provider(), events); result != 0) {
        return librpma::Failure{result};
    }
    return req;
}

rpma_conn_req::Made rpma_conn_req::make_with_queues(const rpma_peer &peer, verbs::Id id,
                                                    librpma::PrivateData private_data,
                                                    const librpma::ConnectionConfiguration &configuration) {
    auto req = make_bare(peer, std::move(id), std::move(private_data), configuration.events);
    if (req) {
        (*req)->configuration_ = configuration;
        if (const int result = (*req)->make_ready(); result != 0) {
            return librpma::Failure{result};
        }
    }
    return req;
}

int rpma_conn_req::prepare(const rpma_peer &peer, const librpma::ConnectionConfiguration &configuration) {
    if (state_ != State::Bare) {
        BASE_LOG(Error, "only a request of rpma_ep_next_bare_req is prepared, and once");
        return RPMA_E_INVAL;
    }
    if (peer.pd()->context != connection_.id->verbs) {
        BASE_LOG(Error, "a request that came by %s cannot be prepared with a peer on %s",
                 connection_.id->verbs->device->name, peer.pd()->context->device->name);
        return RPMA_E_INVAL;
    }
    peer_ = &peer;
    configuration_ = configuration;
    if (configuration.events != nullptr || !connection_.event_channel) {
        auto own = std::move(connection_.event_channel);
        const int result = connection_.make_event_channel(peer.provider(), configuration.events);
        if (result != 0) {
            connection_.event_channel = std::move(own);
            return fail(result);
        }
    }
    return make_ready();
}

void rpma_conn_req::arrived(librpma::PrivateData private_data) {
    passive_ = true;
    connection_.private_data = std::move(private_data);
}

int rpma_conn_req::make_ready() {
    if (passive_ && configuration_.tls != nullptr &&
        !librpma::uses_tls(peer_->provider(), connection_.id.get(), configuration_.tls)) {
        BASE_LOG(Error,
                 "the request came without the TLS that its configuration asks for: expected the same %s of "
                 "the endpoint (rpma_ep_cfg_set_tls)",
                 configuration_.tls->c_str());
        return fail(RPMA_E_INVAL);
    }
    if (const int result = connection_.make_queues(*peer_, configuration_); result != 0) {
        return fail(result);
    }
    state_ = State::Ready;
    return 0;
}

int rpma_conn_req::fail(int result) {
    state_ = State::Failed;
    failure_ = result;
    return result;
}

int rpma_conn_req::set_blocking(bool blocking) const {
    const int flags = ::fcntl(event_fd(), F_GETFL);
    if (flags == -1 ||
        ::fcntl(event_fd(), F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) != 0) {
        return librpma::log_provider_failure("fcntl of an event channel", errno);
    }
    return 0;
}

int rpma_conn_req::wait_on_own_channel() {
    auto channel = librpma::make_channel(peer_->provider());
    if (!channel) {
        return channel.error();
    }
    connection_.event_channel = std::move(*channel);
    waits_on_descriptor_ = true;
    return set_blocking(false);
}

int rpma_conn_req::step() {
    auto event = librpma::next_event(peer_->provider(), connection_.event_channel.get());
    if (!event) {
        return event.error() == RPMA_E_NO_EVENT ? RPMA_E_AGAIN : event.error();
    }
    return advance(std::move(*event));
}

int rpma_conn_req::advance(verbs::Event event) {
    const verbs::Provider &provider = peer_->provider();
    switch (event->event) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            event.reset();
            if (provider.cm.resolve_route(connection_.id.get(), configuration_.timeout_ms) != 0) {
                return fail(librpma::log_provider_failure("rdma_resolve_route", errno));
            }
            return 0;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            event.reset();
            return make_ready();
        case RDMA_CM_EVENT_CONNECT_REQUEST: {
            auto private_data = librpma::PrivateData::copy(event->param.conn);
            event.reset();
            if (!private_data) {
                return fail(private_data.error());
            }
            arrived(std::move(*private_data));
            return make_ready();
        }
        default:
            error_ = event->status < 0 ? -event->status : EHOSTUNREACH;
            BASE_LOG(Error, "no connection: %s, %s", provider.cm.event_str(event->event),
                     librpma::error_text(event->status < 0 ? -event->status : event->status));
            return fail(RPMA_E_PROVIDER);
    }
}

bool rpma_conn_req::take(verbs::Event event) {
    const base::Lock lock{beginning_};
    return advance(std::move(event)) != 0 || ready();
}

int rpma_conn_req::proceed() {
    while (!ready()) {
        if (state_ == State::Failed) {
            return failure_;
        }
        if (!waits_on_descriptor_) {
            return RPMA_E_AGAIN;
        }
        if (const int result = step(); result != 0) {
            return result;
        }
    }
    return 0;
}

// The steps that can fail come before the answer, so that an accepted peer has a connection.
librpma::Result<std::unique_ptr<rpma_conn>> rpma_conn_req::prepare_connection() {
    if (!ready()) {
        BASE_LOG(Error, "the request cannot be connected yet (rpma_conn_req_proceed, rpma_conn_req_prepare)");
        return librpma::Failure{RPMA_E_INVAL};
    }
    if (const int result = waits_on_descriptor_ ? set_blocking(true) : 0; result != 0) {
        return librpma::Failure{result};
    }
    auto conn = librpma::make<rpma_conn>(*peer_, configuration_);
    if (conn == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    conn->set_context(context_);
    return conn;
}

int rpma_conn_req::reject(const rpma_conn_private_data *data) {
    if (!passive_) {
        return librpma::invalid("only the request of a peer is rejected");
    }
    const void *const bytes = data != nullptr ? data->ptr : nullptr;
    if (peer_->provider().cm.reject(connection_.id.get(), bytes, data != nullptr ? data->len : 0) != 0) {
        return librpma::log_provider_failure("rdma_reject", errno);
    }
    passive_ = false;  // it has its answer
    return 0;
}

librpma::Result<std::unique_ptr<rpma_conn>> rpma_conn_req::connect(const rpma_conn_private_data *data) {
    auto conn = prepare_connection();
    if (!conn) {
        return conn;
    }
    const verbs::Provider &provider = peer_->provider();
    rdma_conn_param parameters = connection_parameters(configuration_, data);
    rdma_cm_id *const id = connection_.id.get();
    (*conn)->begin(std::move(connection_));
    if ((passive_ ? provider.cm.accept(id, &parameters) : provider.cm.connect(id, &parameters)) != 0) {
        const int number = errno;
        connection_ = (*conn)->give_back();
        const char *const call = passive_ ? "rdma_accept" : "rdma_connect";
        if (number == EINVAL) {
            BASE_LOG(Error, "%s (%u bytes of private data, of which rdma_cm takes %u) failed: %s", call,
                     unsigned{parameters.private_data_len},
                     passive_ ? most_private_data_of_answer : most_private_data_of_request,
                     librpma::error_text(number));
        } else {
            (void)librpma::log_provider_failure(call, number);
        }
        return librpma::Failure{RPMA_E_PROVIDER};
    }
    return conn;
}
