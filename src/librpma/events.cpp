// SPDX-License-Identifier: BSD-3-Clause
// librpma/events: the events of many connections, in one channel.
#include "librpma/events.hpp"

#include "librpma/ep.hpp"

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

librpma::Result<rpma_event> rpma_events::take() {
    while (true) {
        auto event = librpma::next_event(provider_, channel_.get());
        if (!event) {
            return librpma::Failure{event.error()};
        }
        auto *const owner = static_cast<librpma::IdOwner *>((*event)->id->context);
        if (owner == nullptr) {
            continue;  // of a request that is no connection yet, and perhaps never will be
        }
        rpma_event taken{};
        switch (owner->kind()) {
            case librpma::IdOwner::Kind::Connection: {
                taken.type = RPMA_EVENT_CONN;
                taken.conn = static_cast<rpma_conn *>(owner);
                const auto what = taken.conn->take_event(std::move(*event));
                if (!what) {
                    return librpma::Failure{what.error()};
                }
                taken.conn_event = *what;
                return taken;
            }
            case librpma::IdOwner::Kind::Request:
                taken.type = RPMA_EVENT_CONN_REQ;
                taken.req = static_cast<rpma_conn_req *>(owner);
                if (!taken.req->take(std::move(*event))) {
                    continue;
                }
                return taken;
            case librpma::IdOwner::Kind::Endpoint:
                taken.type = RPMA_EVENT_EP;
                taken.ep = static_cast<rpma_ep *>(owner);
                if (const int result = taken.ep->keep(std::move(*event)); result != 0) {
                    return librpma::Failure{result};
                }
                return taken;
        }
    }
}

int rpma_events::begin_wait(int *fd) {
    if (provider_.events_wait_begin == nullptr) {
        *fd = channel_->fd;
        return 0;
    }
    return librpma::waited(provider_.events_wait_begin(channel_.get(), fd), "softrdma_events_wait_begin");
}

int rpma_events::end_wait() {
    return provider_.events_wait_end == nullptr
               ? 0
               : librpma::waited(provider_.events_wait_end(channel_.get()), "softrdma_events_wait_end");
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

int rpma_events_take(struct rpma_events *events, struct rpma_event *event) {
    if (events == nullptr || event == nullptr) {
        return librpma::invalid("events or event is NULL");
    }
    const auto taken = events->take();
    if (!taken) {
        return taken.error();
    }
    *event = *taken;
    return 0;
}

int rpma_events_next(struct rpma_events *events, struct rpma_conn **conn, enum rpma_conn_event *event) {
    if (events == nullptr || conn == nullptr || event == nullptr) {
        return librpma::invalid("events, conn or event is NULL");
    }
    const auto taken = events->take();
    if (!taken) {
        return taken.error();
    }
    if (taken->type != RPMA_EVENT_CONN) {
        return RPMA_E_NO_EVENT;
    }
    *conn = taken->conn;
    *event = taken->conn_event;
    return 0;
}
