/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel_ends: has fixtures on a device of the kernel, and the objects that tests make. */
#include "kernel_ends.h"

#include <string.h>

struct rpma_peer *peer;
struct rpma_ep *ep;
struct rpma_conn_cfg *cfg;
struct rpma_srq *srq;
struct rpma_conn_req *request;
struct rpma_conn *conn;
struct rdma_cm_event event;

static struct rdma_cm_id incoming;

void gives(enum rdma_cm_event_type type) {
    event = (struct rdma_cm_event){.event = type};
    kernel.cm_event = &event;
}

void request_arrives(void) {
    incoming = (struct rdma_cm_id){.verbs = &kernel.verbs.context};
    gives(RDMA_CM_EVENT_CONNECT_REQUEST);
    event.id = &incoming;
}

int make_kernel_peer(void **state) {
    make_kernel_device(state);
    peer = kernel_peer();
    assert_ok(rpma_conn_cfg_new(&cfg));
    return 0;
}

int make_kernel_endpoint(void **state) {
    make_kernel_peer(state);
    assert_ok(rpma_ep_listen(peer, "anywhere", "7204", &ep));
    return 0;
}

int end_kernel(void **state) {
    (void)state;
    int failures = 0;
    let_fail(NULL, 0);
    failures += rpma_conn_delete(&conn) != 0;
    failures += rpma_conn_req_delete(&request) != 0;
    failures += rpma_ep_shutdown(&ep) != 0;
    failures += rpma_srq_delete(&srq) != 0;
    failures += rpma_conn_cfg_delete(&cfg) != 0;
    failures += rpma_peer_delete(&peer) != 0;
    return failures;
}

void renew_peer(void) {
    assert_ok(rpma_peer_delete(&peer));
    peer = kernel_peer();
}

struct rpma_conn_req *kernel_request(const struct rpma_conn_cfg *configuration) {
    struct rpma_conn_req *made = NULL;
    assert_ok(rpma_conn_req_new(peer, "somewhere", "7204", configuration, &made));
    return made;
}

struct rpma_conn *kernel_connection(const struct rpma_conn_cfg *configuration) {
    enum rpma_conn_event got = RPMA_CONN_UNDEFINED;
    struct rpma_conn_req *made = kernel_request(configuration);
    struct rpma_conn *connection = NULL;
    assert_ok(rpma_conn_req_connect(&made, NULL, &connection));
    gives(RDMA_CM_EVENT_ESTABLISHED);
    assert_ok(rpma_conn_next_event(connection, &got));
    assert_int_equal(got, RPMA_CONN_ESTABLISHED);
    return connection;
}

void assert_nothing_is_left(void) {
    static const char *const kinds[][2] = {
        {"ibv_alloc_pd", "ibv_dealloc_pd"},
        {"ibv_reg_mr", "ibv_dereg_mr"},
        {"ibv_create_comp_channel", "ibv_destroy_comp_channel"},
        {"ibv_create_cq", "ibv_destroy_cq"},
        {"ibv_create_srq", "ibv_destroy_srq"},
        {"rdma_create_event_channel", "rdma_destroy_event_channel"},
        {"rdma_create_id", "rdma_destroy_id"},
        {"rdma_create_qp", "rdma_destroy_qp"},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
        const bool one_was_refused = kernel.failing != NULL && strcmp(kernel.failing, kinds[i][0]) == 0;
        const int made = called(kinds[i][0]) - (one_was_refused ? 1 : 0);
        if (made != called(kinds[i][1])) {
            print_error("%s: %d made, %d ended, in: %s\n", kinds[i][0], made, called(kinds[i][1]),
                        kernel.calls);
        }
        assert_int_equal(made, called(kinds[i][1]));
    }
}
