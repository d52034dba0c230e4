// SPDX-License-Identifier: BSD-3-Clause
// librpma/connection_resources: an id with its channels and queues, which a request hands on to its
// connection.
#pragma once

#include "librpma/conn_cfg.hpp"
#include "librpma/cq.hpp"
#include "librpma/peer.hpp"
#include "librpma/private_data.hpp"

namespace librpma {

// The members are in the order in which they are made; close() destroys them in the opposite order.
struct ConnectionResources {
    // The id's own channel; none when its events go to an rpma_events.
    verbs::EventChannel event_channel;
    verbs::CompletionChannel shared_channel;
    verbs::Id id;
    std::unique_ptr<rpma_cq> own_cq;
    std::unique_ptr<rpma_cq> own_rcq;
    // The completion queues of operations and of receives: its own, or the configured ones. rcq is nullptr
    // when receives complete in cq or in the shared receive queue's.
    rpma_cq *cq = nullptr;
    rpma_cq *rcq = nullptr;
    verbs::QueuePair qp;
    // The native_ operations with which the queue pair was created.
    unsigned native_operations = 0;
    PrivateData private_data;

    // Makes the completion queues and the queue pair on the id. After a failure close() destroys the objects
    // that were made.
    [[nodiscard]] int make_queues(const rpma_peer &peer, const ConnectionConfiguration &configuration);
    // Gives the id's events to the queue, or to an event channel of its own. From then on, until the id has a
    // context, its events have no receiver (rpma_events::take).
    [[nodiscard]] int make_event_channel(const verbs::Provider &provider, const rpma_events *events);

    // Destroys all parts, and returns the first error. `reject` is for an id whose request has not been
    // answered.
    [[nodiscard]] int close(const verbs::Provider &provider, bool reject);

private:
    [[nodiscard]] Result<rpma_cq *> make_completion_queue(const rpma_peer &peer, std::uint32_t size,
                                                          rpma_cq *configured, std::unique_ptr<rpma_cq> &own);
    [[nodiscard]] int make_completion_queues(const rpma_peer &peer,
                                             const ConnectionConfiguration &configuration);
};

}  // namespace librpma
