// SPDX-License-Identifier: BSD-3-Clause
// librpma/events: the events of many connections, in one channel.
#include "librpma/events.hpp"

#include "librpma/event_channel.hpp"

librpma::Result<std::unique_ptr<rpma_events>> rpma_events::create(const rpma_peer &peer) {
    auto channel = librpma::make_channel(peer.provider());
    if (!channel) {
        return librpma::Failure{channel.error()};
    }
    auto events = librpma::make<rpma_events>(peer.provider(), std::move(*channel));
    if (events == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    return events;
}

int rpma_events::begin_wait(int *fd) {
    if (!provider_.capabilities.waits_unarmed) {
        *fd = channel_->fd;
        return 0;
    }
    return librpma::waited(provider_.beyond.events_wait_begin(channel_.get(), fd),
                           "softrdma_events_wait_begin");
}

int rpma_events::end_wait() {
    return provider_.capabilities.waits_unarmed
               ? librpma::waited(provider_.beyond.events_wait_end(channel_.get()), "softrdma_events_wait_end")
               : 0;
}

int rpma_events::close() {
    librpma::FirstError error;
    error.add(channel_.reset(), "rdma_destroy_event_channel");
    return error.code();
}

int rpma_events_new(struct rpma_peer *peer, struct rpma_events **events_ptr) {
    if (peer == nullptr || events_ptr == nullptr) {
        return librpma::invalid("peer or events_ptr is NULL");
    }
    return librpma::give(rpma_events::create(*peer), events_ptr);
}

int rpma_events_delete(struct rpma_events **events_ptr) {
    return librpma::destroy(events_ptr);
}

int rpma_events_get_fd(const struct rpma_events *events, int *fd) {
    if (events == nullptr || fd == nullptr) {
        return librpma::invalid("events or fd is NULL");
    }
    *fd = events->channel()->fd;
    return 0;
}

int rpma_events_wait_begin(struct rpma_events *events, int *fd) {
    return events == nullptr || fd == nullptr ? librpma::invalid("events or fd is NULL")
                                              : events->begin_wait(fd);
}

int rpma_events_wait_end(struct rpma_events *events) {
    return events == nullptr ? librpma::invalid("events is NULL") : events->end_wait();
}

namespace librpma {

int check_events(const verbs::Provider &provider, const rpma_events *events) {
    if (events != nullptr && &events->provider() != &provider) {
        BASE_LOG(Error, "events of a %s device cannot go to a queue of a %s device", provider.name,
                 events->provider().name);
        return RPMA_E_INVAL;
    }
    return 0;
}

}  // namespace librpma
