// SPDX-License-Identifier: BSD-3-Clause
// librpma/ep: an endpoint, which listens at an address.
#pragma once

#include "base/mutex.hpp"
#include "librpma/conn_req.hpp"
#include "librpma/ep_cfg.hpp"

struct rpma_ep final : librpma::IdOwner {
public:
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_ep>> listen(
        const rpma_peer &peer, const char *address, const char *port,
        const librpma::EndpointConfiguration &configuration);
    rpma_ep(const rpma_peer &peer, const rpma_events *events)
        : IdOwner{Kind::Endpoint}, peer_{peer}, events_{events} {}
    ~rpma_ep() { (void)close(); }
    rpma_ep(const rpma_ep &) = delete;
    rpma_ep &operator=(const rpma_ep &) = delete;

    // Returns nullptr when events go to an rpma_events.
    [[nodiscard]] rdma_event_channel *channel() const { return channel_.get(); }
    [[nodiscard]] const rdma_cm_id &id() const { return *id_; }
    // Keeps an event that came to the rpma_events, for the next call that asks for a request.
    [[nodiscard]] int keep(verbs::Event event) EXCLUDES(mutex_);
    // These return a request of a peer. Each writes *req_ptr on success, and NULL when the event cannot be
    // acknowledged; the second makes no queues.
    [[nodiscard]] int next_request(const librpma::ConnectionConfiguration &configuration,
                                   rpma_conn_req **req_ptr);
    [[nodiscard]] int next_bare_request(rpma_conn_req **req_ptr);
    [[nodiscard]] int close();

private:
    struct Asked {
        verbs::Id id;
        librpma::PrivateData private_data;
    };
    struct Kept {
        verbs::Event event;
        std::unique_ptr<Kept> next;
    };

    [[nodiscard]] int bind_and_listen(const char *address, const char *port,
                                      const librpma::EndpointConfiguration &configuration);
    [[nodiscard]] librpma::Result<verbs::Event> next_event() EXCLUDES(mutex_);
    // Returns the next peer that asks, and rejects it when this fails.
    [[nodiscard]] librpma::Result<Asked> next_asked(rpma_conn_req **req_ptr);
    void reject(verbs::Event event) const;

    const rpma_peer &peer_;
    const rpma_events *const events_;
    verbs::EventChannel channel_;  // its own, unless there is an rpma_events
    verbs::Id id_;
    base::Mutex mutex_;
    std::unique_ptr<Kept> first_ GUARDED_BY(mutex_);
    std::unique_ptr<Kept> *end_ GUARDED_BY(mutex_) = &first_;
};
