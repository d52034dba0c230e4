// SPDX-License-Identifier: BSD-3-Clause
// librpma/ep: an address that is listened at.
#pragma once

#include "librpma/conn_req.hpp"
#include "librpma/ep_cfg.hpp"

struct rpma_ep final {
public:
    [[nodiscard]] static librpma::Result<std::unique_ptr<rpma_ep>> listen(
        const rpma_peer &peer, const char *address, const char *port,
        const librpma::EndpointParameters &parameters);
    rpma_ep(const rpma_peer &peer, verbs::EventChannel channel, verbs::Id id)
        : peer_{peer}, channel_{std::move(channel)}, id_{std::move(id)} {}

    [[nodiscard]] int fd() const { return channel_->fd; }
    [[nodiscard]] const rdma_cm_id &id() const { return *id_; }
    // Writes *req_ptr on success, and NULL when the event cannot be acknowledged.
    [[nodiscard]] int next_request(const librpma::ConnectionParameters &parameters, rpma_conn_req **req_ptr);
    [[nodiscard]] int close();

private:
    const rpma_peer &peer_;
    verbs::EventChannel channel_;
    verbs::Id id_;
};
