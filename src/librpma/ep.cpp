// SPDX-License-Identifier: BSD-3-Clause
// librpma/ep: an endpoint, which listens at an address.
#include "librpma/ep.hpp"

#include <cerrno>
#include <cstring>

#include "librpma/accessor.hpp"
#include "librpma/event_channel.hpp"
#include "librpma/events.hpp"

namespace {

// Sets one of rdma_cm's switches, which are off in a new id.
bool switch_on(const verbs::Provider &provider, rdma_cm_id *id, int option, bool wanted) {
    int on = 1;
    return !wanted || provider.cm.set_option(id, RDMA_OPTION_ID, option, &on, sizeof(on)) == 0;
}

}  // namespace

librpma::Result<std::unique_ptr<rpma_ep>> rpma_ep::listen(
    const rpma_peer &peer, const char *address, const char *port,
    const librpma::EndpointConfiguration &configuration) {
    if (const int result = librpma::check_events(peer.provider(), configuration.events); result != 0) {
        return librpma::Failure{result};
    }
    auto ep = librpma::make<rpma_ep>(peer, configuration.events);
    if (ep == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    if (const int result = ep->bind_and_listen(address, port, configuration); result != 0) {
        return librpma::Failure{result};
    }
    BASE_LOG(Notice, "Waiting for incoming connection on %s:%s", address, port);
    return ep;
}

int rpma_ep::bind_and_listen(const char *address, const char *port,
                             const librpma::EndpointConfiguration &configuration) {
    const verbs::Provider &provider = peer_.provider();
    const ibv_device &device = *peer_.pd()->context->device;
    const auto refuse = [&](const char *step, const char *reason) {
        BASE_LOG(Error, "cannot listen at %s:%s on %s: %s: %s", address, port, device.name, step, reason);
        return RPMA_E_PROVIDER;
    };
    const auto info = verbs::look_up(provider, address, port, verbs::Side::Local);
    if (!info) {
        return refuse("rdma_getaddrinfo", info.error());
    }
    if (events_ == nullptr) {
        channel_ = {provider, provider.cm.create_event_channel()};
        if (!channel_) {
            return refuse("rdma_create_event_channel", librpma::error_text(errno));
        }
    }
    rdma_cm_id *raw = nullptr;
    if (provider.cm.create_id(events_ != nullptr ? events_->channel() : channel_.get(), &raw,
                              static_cast<librpma::IdOwner *>(this), RDMA_PS_TCP) != 0) {
        return refuse("rdma_create_id", librpma::error_text(errno));
    }
    id_ = {provider, raw};
    if (!switch_on(provider, raw, RDMA_OPTION_ID_REUSEADDR, configuration.reuseaddr) ||
        !switch_on(provider, raw, RDMA_OPTION_ID_AFONLY, configuration.v6only)) {
        return refuse("rdma_set_option", librpma::error_text(errno));
    }
    if (const int result = librpma::use_tls(provider, raw, configuration.tls); result != 0) {
        return result;
    }
    if (provider.cm.bind_addr(raw, (*info)->ai_src_addr) != 0) {
        return refuse("rdma_bind_addr", librpma::error_text(errno));
    }
    if (raw->verbs != nullptr && std::strcmp(raw->verbs->device->name, device.name) != 0) {
        return refuse("the address is served by another device", raw->verbs->device->name);
    }
    if (provider.cm.listen(raw, configuration.backlog) != 0) {
        return refuse("rdma_listen", librpma::error_text(errno));
    }
    return 0;
}

int rpma_ep::keep(verbs::Event event) {
    const base::Lock lock{mutex_};
    auto kept = librpma::make<Kept>();
    if (kept == nullptr) {
        reject(std::move(event));
        return RPMA_E_NOMEM;
    }
    kept->event = std::move(event);
    *end_ = std::move(kept);
    end_ = &(*end_)->next;
    return 0;
}

void rpma_ep::reject(verbs::Event event) const {
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        const verbs::Id id{peer_.provider(), event->id};
        event.reset();
        peer_.provider().cm.reject(id.get(), nullptr, 0);
    }
}

librpma::Result<verbs::Event> rpma_ep::next_event() {
    if (events_ == nullptr) {
        return librpma::next_event(peer_.provider(), channel_.get());
    }
    const base::Lock lock{mutex_};
    if (first_ == nullptr) {
        return librpma::Failure{RPMA_E_NO_EVENT};
    }
    const auto kept = std::exchange(first_, std::move(first_->next));
    end_ = first_ == nullptr ? &first_ : end_;
    return std::move(kept->event);
}

librpma::Result<rpma_ep::Asked> rpma_ep::next_asked(rpma_conn_req **req_ptr) {
    const verbs::Provider &provider = peer_.provider();
    auto event = next_event();
    if (!event) {
        return librpma::Failure{event.error()};
    }
    const rdma_cm_event_type type = (*event)->event;
    if (type != RDMA_CM_EVENT_CONNECT_REQUEST) {
        BASE_LOG(Error, "the endpoint got %s instead of a connection request", provider.cm.event_str(type));
        return librpma::Failure{RPMA_E_INVAL};
    }
    verbs::Id id{provider, (*event)->id};
    auto private_data = librpma::PrivateData::copy((*event)->param.conn);
    // The event is acknowledged first, because destroying the id waits for that.
    const int number = event->reset();
    if (number != 0) {
        BASE_LOG(Error, "rdma_ack_cm_event failed: %s", librpma::error_text(number));
        provider.cm.reject(id.get(), nullptr, 0);
        *req_ptr = nullptr;
        return librpma::Failure{RPMA_E_PROVIDER};
    }
    if (!private_data) {
        provider.cm.reject(id.get(), nullptr, 0);
        return librpma::Failure{private_data.error()};
    }
    return Asked{.id = std::move(id), .private_data = std::move(*private_data)};
}

int rpma_ep::next_request(const librpma::ConnectionConfiguration &configuration, rpma_conn_req **req_ptr) {
    auto asked = next_asked(req_ptr);
    if (!asked) {
        return asked.error();
    }
    return librpma::give(rpma_conn_req::make_with_queues(peer_, std::move(asked->id),
                                                         std::move(asked->private_data), configuration),
                         req_ptr);
}

int rpma_ep::next_bare_request(rpma_conn_req **req_ptr) {
    auto asked = next_asked(req_ptr);
    if (!asked) {
        return asked.error();
    }
    return librpma::give(
        rpma_conn_req::make_bare(peer_, std::move(asked->id), std::move(asked->private_data), events_),
        req_ptr);
}

int rpma_ep::close() {
    std::unique_ptr<Kept> first;
    {
        const base::Lock lock{mutex_};
        first = std::move(first_);
        end_ = &first_;
    }
    for (auto kept = std::move(first); kept != nullptr; kept = std::move(kept->next)) {
        reject(std::move(kept->event));
    }
    librpma::FirstError error;
    error.add(id_.reset(), "rdma_destroy_id");
    error.add(channel_.reset(), "rdma_destroy_event_channel");
    return error.code();
}

int rpma_ep_listen(struct rpma_peer *peer, const char *addr, const char *port, struct rpma_ep **ep_ptr) {
    return rpma_ep_listen_cfg(peer, addr, port, nullptr, ep_ptr);
}

int rpma_ep_listen_cfg(struct rpma_peer *peer, const char *addr, const char *port,
                       const struct rpma_ep_cfg *cfg, struct rpma_ep **ep_ptr) {
    if (peer == nullptr || addr == nullptr || port == nullptr || ep_ptr == nullptr) {
        return librpma::invalid("peer, addr, port or ep_ptr is NULL");
    }
    return librpma::give(rpma_ep::listen(*peer, addr, port, librpma::configuration_of(cfg)), ep_ptr);
}

int rpma_ep_shutdown(struct rpma_ep **ep_ptr) {
    return librpma::destroy(ep_ptr);
}

int rpma_ep_get_fd(const struct rpma_ep *ep, int *fd) {
    if (ep == nullptr || fd == nullptr) {
        return librpma::invalid("ep or fd is NULL");
    }
    if (ep->channel() == nullptr) {
        return RPMA_E_NOSUPP;
    }
    *fd = ep->channel()->fd;
    return 0;
}

int rpma_ep_get_local_addr(const struct rpma_ep *ep, struct sockaddr_storage *addr) {
    return librpma::get_address(ep, &rdma_addr::src_storage, addr);
}

int rpma_ep_next_conn_req(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg,
                          struct rpma_conn_req **req_ptr) {
    if (ep == nullptr || req_ptr == nullptr) {
        return librpma::invalid("ep or req_ptr is NULL");
    }
    return ep->next_request(librpma::configuration_of(cfg), req_ptr);
}

int rpma_ep_next_bare_req(struct rpma_ep *ep, struct rpma_conn_req **req_ptr) {
    if (ep == nullptr || req_ptr == nullptr) {
        return librpma::invalid("ep or req_ptr is NULL");
    }
    return ep->next_bare_request(req_ptr);
}
