/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests endpoints on a device of the kernel: the requests
 * that arrive, with failures of every step. */
#include <errno.h>

#include "kernel_ends.h"

/* ---- incoming requests ---- */

static void endpoint_says_when_there_is_nothing(void **state) {
    (void)state;
    struct rpma_conn_req *none = anything();
    assert_code(rpma_ep_next_conn_req(ep, NULL, &none), RPMA_E_NO_EVENT);
    let_fail("rdma_get_cm_event", ENODATA);
    assert_code(rpma_ep_next_conn_req(ep, NULL, &none), RPMA_E_NO_EVENT);
    let_fail("rdma_get_cm_event", EBADF);
    assert_code(rpma_ep_next_conn_req(ep, NULL, &none), RPMA_E_PROVIDER);
    assert_ptr_equal(none, anything());
    assert_true(logged("rdma_get_cm_event", "Bad file descriptor", NULL));
}

static void other_events_are_not_requests(void **state) {
    (void)state;
    struct rpma_conn_req *none = anything();
    request_arrives();
    event.event = RDMA_CM_EVENT_ADDR_CHANGE;
    assert_code(rpma_ep_next_conn_req(ep, NULL, &none), RPMA_E_INVAL);
    assert_ptr_equal(none, anything());
    assert_int_equal(called("rdma_ack_cm_event"), 1);
    assert_int_equal(called("rdma_reject"), 0);
    assert_true(logged("RDMA_CM_EVENT_ADDR_CHANGE", NULL));
}

/* After any failure the event is acknowledged, the peer is rejected, and no object is left. */
static void request_that_cannot_be_served_is_rejected(void **state) {
    (void)state;
    static const char *const steps[] = {"rdma_create_event_channel", "rdma_migrate_id",
                                        "ibv_create_comp_channel",   "ibv_create_cq",
                                        "ibv_req_notify_cq",         "rdma_create_qp"};
    for (size_t i = 0; i < COUNT(steps); ++i) {
        struct rpma_conn_req *none = anything();
        forget_calls();
        request_arrives();
        let_fail(steps[i], EIO);
        assert_code(rpma_ep_next_conn_req(ep, NULL, &none), RPMA_E_PROVIDER);
        assert_ptr_equal(none, anything());
        assert_int_equal(called("rdma_ack_cm_event"), 1);
        assert_int_equal(called("rdma_reject"), 1);
        assert_int_equal(called("rdma_destroy_id"), 1);
        assert_true(logged(steps[i], "Input/output error", NULL));
        let_fail(NULL, 0);
    }
}

static void request_whose_event_cannot_be_acknowledged(void **state) {
    (void)state;
    struct rpma_conn_req *none = anything();
    request_arrives();
    let_fail("rdma_ack_cm_event", EIO);
    assert_code(rpma_ep_next_conn_req(ep, NULL, &none), RPMA_E_PROVIDER);
    assert_null(none);
    assert_int_equal(called("rdma_reject"), 1);
    assert_int_equal(called("rdma_destroy_id"), 1);
}

static void rejecting_leaves_nothing(void **state) {
    (void)state;
    request_arrives();
    assert_ok(rpma_ep_next_conn_req(ep, NULL, &request));
    forget_calls();
    assert_ok(rpma_conn_req_delete(&request));
    assert_string_equal(kernel.calls,
                        "rdma_reject rdma_destroy_qp ibv_destroy_cq ibv_destroy_comp_channel rdma_destroy_id "
                        "rdma_destroy_event_channel ");
    /* The same is true when the kernel refuses the rejection. */
    request_arrives();
    assert_ok(rpma_ep_next_conn_req(ep, NULL, &request));
    forget_calls();
    let_fail("rdma_reject", EINVAL);
    assert_code(rpma_conn_req_delete(&request), RPMA_E_PROVIDER);
    assert_null(request);
    assert_int_equal(called("rdma_destroy_id"), 1);
}

static void failed_accept_leaves_nothing(void **state) {
    (void)state;
    struct rpma_conn *none = anything();
    request_arrives();
    assert_ok(rpma_ep_next_conn_req(ep, NULL, &request));
    forget_calls();
    let_fail("rdma_accept", EIO);
    assert_code(rpma_conn_req_connect(&request, NULL, &none), RPMA_E_PROVIDER);
    assert_null(request);
    assert_ptr_equal(none, anything());
    assert_int_equal(called("rdma_reject"), 1);
    assert_int_equal(called("rdma_destroy_id"), 1);
    assert_int_equal(called("rdma_destroy_event_channel"), 1);
}

static void invalid_accept_rejects(void **state) {
    (void)state;
    request_arrives();
    assert_ok(rpma_ep_next_conn_req(ep, NULL, &request));
    assert_code(rpma_conn_req_connect(&request, NULL, NULL), RPMA_E_INVAL);
    assert_null(request);
    assert_int_equal(called("rdma_reject"), 1);
    assert_int_equal(called("rdma_accept"), 0);
}

static void listening_can_fail(void **state) {
    (void)state;
    static const char *const steps[] = {"rdma_getaddrinfo", "rdma_create_event_channel", "rdma_create_id",
                                        "rdma_bind_addr", "rdma_listen"};
    for (size_t i = 0; i < COUNT(steps); ++i) {
        struct rpma_ep *none = anything();
        forget_calls();
        let_fail(steps[i], EACCES);
        assert_code(rpma_ep_listen(peer, "anywhere", "7204", &none), RPMA_E_PROVIDER);
        assert_ptr_equal(none, anything());
        assert_true(logged(steps[i], "anywhere:7204", "Permission denied", NULL));
        assert_nothing_is_left();
    }
}

static void failed_shutdown_shuts_down(void **state) {
    (void)state;
    let_fail("rdma_destroy_id", EBUSY);
    forget_calls();
    assert_code(rpma_ep_shutdown(&ep), RPMA_E_PROVIDER);
    assert_null(ep);
    assert_string_equal(kernel.calls, "rdma_destroy_id rdma_destroy_event_channel ");
}

#define WITH_PEER(test) cmocka_unit_test_setup_teardown(test, make_kernel_peer, end_kernel)
#define WITH_ENDPOINT(test) cmocka_unit_test_setup_teardown(test, make_kernel_endpoint, end_kernel)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_ENDPOINT(endpoint_says_when_there_is_nothing),
        WITH_ENDPOINT(other_events_are_not_requests),
        WITH_ENDPOINT(request_that_cannot_be_served_is_rejected),
        WITH_ENDPOINT(request_whose_event_cannot_be_acknowledged),
        WITH_ENDPOINT(rejecting_leaves_nothing),
        WITH_ENDPOINT(failed_accept_leaves_nothing),
        WITH_ENDPOINT(invalid_accept_rejects),
        WITH_PEER(listening_can_fail),
        WITH_ENDPOINT(failed_shutdown_shuts_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
