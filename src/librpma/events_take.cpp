// SPDX-License-Identifier: BSD-3-Clause
// librpma/events_take: hands the next event of a queue for events to the object that owns its id.
#include "librpma/ep.hpp"
#include "librpma/event_channel.hpp"
#include "librpma/events.hpp"

librpma::Result<rpma_event> rpma_events::take() {
    while (true) {
        auto event = librpma::next_event(provider_, channel_.get());
        if (!event) {
            return librpma::Failure{event.error()};
        }
        auto *const owner = static_cast<librpma::IdOwner *>((*event)->id->context);
        if (owner == nullptr) {
            continue;  // the event of a request that is no connection yet
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
