// SPDX-License-Identifier: BSD-3-Clause
// librpma/connection: what a connection request is made of, and hands on to the connection it becomes.
#pragma once

#include "librpma/conn_cfg.hpp"
#include "librpma/cq.hpp"
#include "librpma/peer.hpp"
#include "librpma/private_data.hpp"

namespace librpma {

// The members are in the order in which they may be made; close() ends them in the opposite one.
struct Connection {
    // The id's own; none when its events go to an rpma_events.
    verbs::EventChannel event_channel;
    verbs::CompletionChannel shared_channel;
    verbs::Id id;
    std::unique_ptr<rpma_cq> own_cq;
    std::unique_ptr<rpma_cq> own_rcq;
    // Where operations complete, and receives if not there: its own, or those that it was configured with.
    // rcq is nullptr when receives complete in cq or in the shared receive queue's.
    rpma_cq *cq = nullptr;
    rpma_cq *rcq = nullptr;
    verbs::QueuePair qp;
    // The native_ operations that the queue pair was asked for.
    unsigned native_operations = 0;
    PrivateData private_data;

    // Makes the completion queues and the queue pair on the id; on failure what was made stays, for close().
    [[nodiscard]] int make_queues(const rpma_peer &peer, const ConnectionParameters &parameters);
    // Gives the id's events to the queue, or to an event channel of its own. Events are nobody's from
    // then on, until the id has a context (rpma_events::take).
    [[nodiscard]] int make_event_channel(const verbs::Provider &provider, const rpma_events *events);

    // Ends all there is; rejecting is for an id whose request nobody has answered. The first error.
    [[nodiscard]] int close(const verbs::Provider &provider, bool reject);

private:
    [[nodiscard]] Result<rpma_cq *> make_completion_queue(const rpma_peer &peer, std::uint32_t size,
                                                          rpma_cq *configured, std::unique_ptr<rpma_cq> &own);
    [[nodiscard]] int make_completion_queues(const rpma_peer &peer, const ConnectionParameters &parameters);
};

}  // namespace librpma
