/* SPDX-License-Identifier: BSD-3-Clause */
/* Both ends of a connection in one process, whose client writes into a region of the process. */
#pragma once

#include "../compat/program.h"

struct ends {
    struct rpma_peer *peer;
    struct rpma_ep *ep;
    struct rpma_conn *client;
    struct rpma_conn *server;
    struct rpma_mr_local *region;
    struct rpma_mr_remote *remote; /* the same region, as the client has it */
    struct rpma_cq *cq;            /* the client's */
};

static inline struct rpma_mr_remote *remote_of(const struct rpma_mr_local *region) {
    struct rpma_mr_remote *remote = NULL;
    char descriptor[64];
    size_t size = 0;
    CHECK(rpma_mr_get_descriptor_size(region, &size));
    REQUIRE(size <= sizeof(descriptor));
    CHECK(rpma_mr_get_descriptor(region, descriptor));
    CHECK(rpma_mr_remote_from_descriptor(descriptor, size, &remote));
    return remote;
}

static inline struct ends open_ends(const char *address, const char *port, void *memory, size_t size,
                                    int usage) {
    struct ends ends = {.peer = new_peer(address)};
    struct rpma_conn_req *request = NULL;
    CHECK(rpma_ep_listen(ends.peer, address, port, &ends.ep));
    CHECK(rpma_conn_req_new(ends.peer, address, port, NULL, &request));
    CHECK(rpma_conn_req_connect(&request, NULL, &ends.client));
    CHECK(rpma_ep_next_conn_req(ends.ep, NULL, &request));
    CHECK(rpma_conn_req_connect(&request, NULL, &ends.server));
    await(ends.client, RPMA_CONN_ESTABLISHED);
    await(ends.server, RPMA_CONN_ESTABLISHED);
    CHECK(rpma_mr_reg(ends.peer, memory, size, usage, &ends.region));
    ends.remote = remote_of(ends.region);
    CHECK(rpma_conn_get_cq(ends.client, &ends.cq));
    return ends;
}

static inline void close_ends(struct ends *ends) {
    CHECK(rpma_conn_disconnect(ends->client));
    CHECK(rpma_conn_disconnect(ends->server));
    CHECK(rpma_conn_delete(&ends->client));
    CHECK(rpma_conn_delete(&ends->server));
    CHECK(rpma_mr_remote_delete(&ends->remote));
    CHECK(rpma_mr_dereg(&ends->region));
    CHECK(rpma_ep_shutdown(&ends->ep));
    CHECK(rpma_peer_delete(&ends->peer));
}
