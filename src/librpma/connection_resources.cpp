// SPDX-License-Identifier: BSD-3-Clause
// librpma/connection_resources: an id with its channels and queues, which a request hands on to its
// connection.
#include "librpma/connection_resources.hpp"

#include <algorithm>
#include <cerrno>

#include "librpma/event_channel.hpp"
#include "librpma/events.hpp"
#include "librpma/srq.hpp"

namespace librpma {

namespace {

constexpr std::uint32_t scatter_gather_elements = 1;

rpma_cq *rcq_of(const rpma_srq *srq) {
    return srq != nullptr ? srq->rcq() : nullptr;
}

}  // namespace

// Returns a completion queue of a connection: the configured one, or a new one of its own.
Result<rpma_cq *> ConnectionResources::make_completion_queue(const rpma_peer &peer, std::uint32_t size,
                                                             rpma_cq *configured,
                                                             std::unique_ptr<rpma_cq> &own) {
    if (configured != nullptr) {
        if (configured->get()->context != id->verbs) {
            BASE_LOG(Error, "a completion queue on %s cannot take completions of a connection on %s",
                     configured->get()->context->device->name, id->verbs->device->name);
            return Failure{RPMA_E_INVAL};
        }
        return configured;
    }
    const auto channel = shared_channel ? rpma_cq::Channel::Shared : rpma_cq::Channel::Own;
    auto made = rpma_cq::create(peer.provider(), id->verbs, size, channel, shared_channel.get());
    if (!made) {
        return Failure{made.error()};
    }
    own = std::move(*made);
    return own.get();
}

int ConnectionResources::make_completion_queues(const rpma_peer &peer,
                                                const ConnectionConfiguration &configuration) {
    const verbs::Provider &provider = peer.provider();
    const bool configured = configuration.cq != nullptr || configuration.rcq != nullptr;
    if (configuration.shared_channel && (configured || rcq_of(configuration.srq) != nullptr)) {
        BASE_LOG(Error,
                 "a shared completion channel excludes a completion queue of several connections, and a "
                 "shared receive queue with a completion queue of its own");
        return RPMA_E_INVAL;
    }
    if (configuration.rcq != nullptr && rcq_of(configuration.srq) != nullptr) {
        BASE_LOG(Error, "receives can complete in one queue: the shared receive queue has another");
        return RPMA_E_INVAL;
    }
    if (configuration.shared_channel) {
        shared_channel = {provider, provider.completion.create_comp_channel(id->verbs)};
        if (!shared_channel) {
            return log_provider_failure("ibv_create_comp_channel", errno);
        }
    }
    const auto sends = make_completion_queue(peer, configuration.cq_size, configuration.cq, own_cq);
    if (!sends) {
        return sends.error();
    }
    cq = *sends;
    if ((configuration.rcq_size > 0 || configuration.rcq != nullptr) &&
        rcq_of(configuration.srq) == nullptr) {
        const auto receives = make_completion_queue(peer, configuration.rcq_size, configuration.rcq, own_rcq);
        if (!receives) {
            return receives.error();
        }
        rcq = *receives;
    }
    return 0;
}

int ConnectionResources::make_queues(const rpma_peer &peer, const ConnectionConfiguration &configuration) {
    if (const int result = make_completion_queues(peer, configuration); result != 0) {
        return result;
    }
    const rpma_cq *receives = rcq_of(configuration.srq);
    if (receives == nullptr) {
        receives = rcq != nullptr ? rcq : cq;
    }
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_context = id.get();
    attributes.send_cq = cq->get();
    attributes.recv_cq = receives->get();
    attributes.srq = configuration.srq != nullptr ? configuration.srq->get() : nullptr;
    attributes.cap.max_send_wr = configuration.sq_size;
    attributes.cap.max_recv_wr = configuration.rq_size;
    attributes.cap.max_send_sge = scatter_gather_elements;
    attributes.cap.max_recv_sge = scatter_gather_elements;
    attributes.cap.max_inline_data = std::max(least_inline_size, configuration.inline_size);
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 0;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = peer.pd();
    attributes.send_ops_flags = peer.provider().native.creation_flags(peer.native_operations());
    native_operations = peer.native_operations();
    if (attributes.send_ops_flags != 0) {
        attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    }
    int result = peer.provider().cm.create_qp_ex(id.get(), &attributes);
    if (result != 0 && attributes.send_ops_flags != 0 && errno == EOPNOTSUPP) {
        // The device has the operations but its driver in this process does not, so they are not used.
        BASE_LOG(Info, "%s has native operations, its driver in user space has not", id->verbs->device->name);
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
        attributes.send_ops_flags = 0;
        native_operations = 0;
        result = peer.provider().cm.create_qp_ex(id.get(), &attributes);
    }
    if (result != 0) {
        const int number = errno;
        BASE_LOG(Error,
                 "rdma_create_qp(send queue %u, receive queue %u, inline %u bytes) on %s, for a peer on %s, "
                 "failed: %s",
                 configuration.sq_size, configuration.rq_size, attributes.cap.max_inline_data,
                 id->verbs->device->name, peer.pd()->context->device->name, error_text(number));
        errno = number;
        log_queue_limits(peer.provider(), id->verbs);
        return RPMA_E_PROVIDER;
    }
    qp = {peer.provider(), id.get()};
    return 0;
}

int ConnectionResources::make_event_channel(const verbs::Provider &provider, const rpma_events *events) {
    if (const int result = check_events(provider, events); result != 0) {
        return result;
    }
    id->context = nullptr;
    verbs::EventChannel own;
    if (events == nullptr) {
        auto made = make_channel(provider);
        if (!made) {
            return made.error();
        }
        own = std::move(*made);
    }
    rdma_event_channel *const channel = events != nullptr ? events->channel() : own.get();
    if (id->channel != channel && provider.cm.migrate_id(id.get(), channel) != 0) {
        return log_provider_failure("rdma_migrate_id", errno);
    }
    event_channel = std::move(own);
    return 0;
}

// errno stays, because a request that cannot be made is closed too, and errno then tells why.
int ConnectionResources::close(const verbs::Provider &provider, bool reject) {
    const int number = errno;
    FirstError error;
    // The rejection comes first, because with it the soft device tells the peer when this process is out of
    // descriptors.
    if (id && reject && provider.cm.reject(id.get(), nullptr, 0) != 0) {
        error.add(errno, "rdma_reject");
    }
    error.add(qp.reset(), "rdma_destroy_qp");
    if (own_rcq != nullptr) {
        error.add_code(own_rcq->close());
    }
    if (own_cq != nullptr) {
        error.add_code(own_cq->close());
    }
    error.add(id.reset(), "rdma_destroy_id");
    error.add(shared_channel.reset(), "ibv_destroy_comp_channel");
    error.add(event_channel.reset(), "rdma_destroy_event_channel");
    errno = number;
    return error.code();
}

}  // namespace librpma
