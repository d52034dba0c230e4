// SPDX-License-Identifier: BSD-3-Clause
// librpma/ep: an address that is listened at.
#include "librpma/ep.hpp"

#include <cerrno>
#include <cstring>

#include "librpma/accessor.hpp"

namespace {

// One of rdma_cm's switches; off is what a new id has.
bool switch_on(const verbs::Provider &provider, rdma_cm_id *id, int option, bool wanted) {
    int on = 1;
    return !wanted || provider.set_option(id, RDMA_OPTION_ID, option, &on, sizeof(on)) == 0;
}

}  // namespace

librpma::Result<std::unique_ptr<rpma_ep>> rpma_ep::listen(const rpma_peer &peer, const char *address,
                                                          const char *port,
                                                          const librpma::EndpointParameters &parameters) {
    const verbs::Provider &provider = peer.provider();
    const auto refuse = [&](const char *step, const char *reason) {
        BASE_LOG(Error, "cannot listen at %s:%s on %s: %s: %s", address, port,
                 peer.pd()->context->device->name, step, reason);
        return librpma::Failure{RPMA_E_PROVIDER};
    };
    const auto info = verbs::look_up(provider, address, port, verbs::Side::Local);
    if (!info) {
        return refuse("rdma_getaddrinfo", info.error());
    }
    verbs::EventChannel channel{provider, provider.create_event_channel()};
    if (!channel) {
        return refuse("rdma_create_event_channel", librpma::error_text(errno));
    }
    rdma_cm_id *raw = nullptr;
    if (provider.create_id(channel.get(), &raw, nullptr, RDMA_PS_TCP) != 0) {
        return refuse("rdma_create_id", librpma::error_text(errno));
    }
    verbs::Id id{provider, raw};
    if (!switch_on(provider, raw, RDMA_OPTION_ID_REUSEADDR, parameters.reuseaddr) ||
        !switch_on(provider, raw, RDMA_OPTION_ID_AFONLY, parameters.v6only)) {
        return refuse("rdma_set_option", librpma::error_text(errno));
    }
    if (provider.bind_addr(raw, (*info)->ai_src_addr) != 0) {
        return refuse("rdma_bind_addr", librpma::error_text(errno));
    }
    const ibv_device &device = *peer.pd()->context->device;
    if (raw->verbs != nullptr && std::strcmp(raw->verbs->device->name, device.name) != 0) {
        return refuse("the address is served by another device", raw->verbs->device->name);
    }
    if (provider.listen(raw, parameters.backlog) != 0) {
        return refuse("rdma_listen", librpma::error_text(errno));
    }
    auto ep = librpma::make<rpma_ep>(peer, std::move(channel), std::move(id));
    if (ep == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    BASE_LOG(Notice, "Waiting for incoming connection on %s:%s", address, port);
    return ep;
}

int rpma_ep::next_request(const librpma::ConnectionParameters &parameters, rpma_conn_req **req_ptr) {
    const verbs::Provider &provider = peer_.provider();
    auto event = librpma::next_event(provider, channel_.get());
    if (!event) {
        return event.error();
    }
    const rdma_cm_event_type type = (*event)->event;
    if (type != RDMA_CM_EVENT_CONNECT_REQUEST) {
        BASE_LOG(Error, "the endpoint got %s instead of a connection request", provider.event_str(type));
        return RPMA_E_INVAL;
    }
    verbs::Id id{provider, (*event)->id};
    auto private_data = librpma::PrivateData::copy((*event)->param.conn);
    // Before the id can be destroyed, which waits for it.
    const int number = event->reset();
    if (number != 0) {
        BASE_LOG(Error, "rdma_ack_cm_event failed: %s", librpma::error_text(number));
        provider.reject(id.get(), nullptr, 0);
        *req_ptr = nullptr;
        return RPMA_E_PROVIDER;
    }
    if (!private_data) {
        provider.reject(id.get(), nullptr, 0);
        return private_data.error();
    }
    return librpma::give(rpma_conn_req::answer(peer_, std::move(id), std::move(*private_data), parameters),
                         req_ptr);
}

int rpma_ep::close() {
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
        return RPMA_E_INVAL;
    }
    return librpma::give(rpma_ep::listen(*peer, addr, port, librpma::parameters_of(cfg)), ep_ptr);
}

int rpma_ep_shutdown(struct rpma_ep **ep_ptr) {
    return librpma::destroy(ep_ptr);
}

int rpma_ep_get_fd(const struct rpma_ep *ep, int *fd) {
    if (ep == nullptr || fd == nullptr) {
        return RPMA_E_INVAL;
    }
    *fd = ep->fd();
    return 0;
}

int rpma_ep_get_local_addr(const struct rpma_ep *ep, struct sockaddr_storage *addr) {
    return librpma::get_address(ep, &rdma_addr::src_storage, addr);
}

int rpma_ep_next_conn_req(struct rpma_ep *ep, const struct rpma_conn_cfg *cfg,
                          struct rpma_conn_req **req_ptr) {
    if (ep == nullptr || req_ptr == nullptr) {
        return RPMA_E_INVAL;
    }
    return ep->next_request(librpma::parameters_of(cfg), req_ptr);
}
