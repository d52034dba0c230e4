/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests requests on a device of the kernel: their parts, the results
 * of failures, and that no object is left. */
#include <errno.h>
#include <limits.h>

#include "kernel_ends.h"

/* ---- the parts of a request ---- */

static void request_makes_its_queues(void **state) {
    (void)state;
    assert_ok(rpma_conn_cfg_set_timeout(cfg, 123));
    assert_ok(rpma_conn_cfg_set_cq_size(cfg, 11));
    assert_ok(rpma_conn_cfg_set_sq_size(cfg, 12));
    assert_ok(rpma_conn_cfg_set_rq_size(cfg, 13));
    forget_calls();
    request = kernel_request(cfg);
    /* librpma does not read the configuration again. */
    assert_ok(rpma_conn_cfg_delete(&cfg));
    assert_string_equal(kernel.calls,
                        "rdma_create_event_channel rdma_getaddrinfo rdma_create_id "
                        "rdma_resolve_addr rdma_get_cm_event rdma_ack_cm_event "
                        "rdma_resolve_route rdma_get_cm_event rdma_ack_cm_event "
                        "ibv_create_comp_channel ibv_create_cq ibv_req_notify_cq rdma_create_qp ");
    assert_int_equal(kernel.resolve_timeouts_ms[0], 123);
    assert_int_equal(kernel.resolve_timeouts_ms[1], 123);
    assert_int_equal(kernel.cq_sizes[0], 11);
    const struct ibv_qp_init_attr_ex *const made = &kernel.qp_attributes[0];
    assert_int_equal(made->qp_type, IBV_QPT_RC);
    assert_int_equal(made->comp_mask, IBV_QP_INIT_ATTR_PD);
    assert_int_equal(made->sq_sig_all, 0);
    assert_int_equal(made->cap.max_send_wr, 12);
    assert_int_equal(made->cap.max_recv_wr, 13);
    assert_int_equal(made->cap.max_send_sge, 1);
    assert_int_equal(made->cap.max_recv_sge, 1);
    assert_int_equal(made->cap.max_inline_data, 8);
    assert_ptr_equal(made->send_cq, made->recv_cq);
    assert_null(made->srq);
}

static void defaults_are_the_librarys(void **state) {
    (void)state;
    request = kernel_request(NULL);
    assert_int_equal(kernel.resolve_timeouts_ms[0], 1000);
    assert_int_equal(kernel.cq_sizes[0], 10);
    assert_int_equal(kernel.cqs, 1);
    assert_int_equal(kernel.qp_attributes[0].cap.max_send_wr, 10);
    assert_int_equal(kernel.qp_attributes[0].cap.max_recv_wr, 10);
}

static void sizes_are_clipped_or_passed_on(void **state) {
    (void)state;
    assert_ok(rpma_conn_cfg_set_cq_size(cfg, UINT32_MAX));
    assert_ok(rpma_conn_cfg_set_rcq_size(cfg, (uint32_t)INT_MAX + 1));
    request = kernel_request(cfg);
    assert_int_equal(kernel.cq_sizes[0], INT_MAX);
    assert_int_equal(kernel.cq_sizes[1], INT_MAX);
    assert_ok(rpma_conn_req_delete(&request));
    assert_ok(rpma_conn_cfg_set_cq_size(cfg, 0));
    assert_ok(rpma_conn_cfg_set_rcq_size(cfg, 0));
    request = kernel_request(cfg);
    assert_int_equal(kernel.cq_sizes[2], 0);
    assert_int_equal(kernel.cqs, 3);
}

static void receives_have_a_queue_of_their_own(void **state) {
    (void)state;
    assert_ok(rpma_conn_cfg_set_rcq_size(cfg, 7));
    request = kernel_request(cfg);
    assert_int_equal(kernel.cq_sizes[1], 7);
    assert_ptr_not_equal(kernel.qp_attributes[0].recv_cq, kernel.qp_attributes[0].send_cq);
    assert_ptr_not_equal(kernel.qp_attributes[0].recv_cq->channel, kernel.qp_attributes[0].send_cq->channel);
    assert_int_equal(called("ibv_create_comp_channel"), 2);
    assert_int_equal(called("ibv_req_notify_cq"), 2);
}

static void one_channel_for_both_queues(void **state) {
    (void)state;
    assert_ok(rpma_conn_cfg_set_rcq_size(cfg, 7));
    assert_ok(rpma_conn_cfg_set_compl_channel(cfg, true));
    request = kernel_request(cfg);
    assert_ptr_equal(kernel.qp_attributes[0].recv_cq->channel, kernel.qp_attributes[0].send_cq->channel);
    assert_int_equal(called("ibv_create_comp_channel"), 1);
}

/* ---- shared receive queues ---- */

static void make_srq(uint32_t rcq_size) {
    struct rpma_srq_cfg *srq_cfg = NULL;
    assert_ok(rpma_srq_cfg_new(&srq_cfg));
    assert_ok(rpma_srq_cfg_set_rq_size(srq_cfg, 33));
    assert_ok(rpma_srq_cfg_set_rcq_size(srq_cfg, rcq_size));
    assert_ok(rpma_srq_new(peer, srq_cfg, &srq));
    assert_ok(rpma_srq_cfg_delete(&srq_cfg));
    assert_ok(rpma_conn_cfg_set_srq(cfg, srq));
}

static void shared_receive_queue_with_its_own_completions(void **state) {
    (void)state;
    struct rpma_cq *rcq = NULL;
    make_srq(5);
    assert_int_equal(kernel.srq_attributes.attr.max_wr, 33);
    assert_int_equal(kernel.srq_attributes.attr.max_sge, 1);
    assert_int_equal(kernel.srq_attributes.attr.srq_limit, 0);
    assert_int_equal(kernel.cq_sizes[0], 5);
    assert_ok(rpma_srq_get_rcq(srq, &rcq));
    assert_non_null(rcq);
    /* The connection then has no such queue, with any configuration. */
    assert_ok(rpma_conn_cfg_set_rcq_size(cfg, 7));
    conn = kernel_connection(cfg);
    assert_int_equal(kernel.cqs, 2);
    assert_ok(rpma_conn_get_rcq(conn, &rcq));
    assert_null(rcq);
    assert_non_null(kernel.qp_attributes[0].srq);
    assert_ptr_not_equal(kernel.qp_attributes[0].recv_cq, kernel.qp_attributes[0].send_cq);
}

static void shared_receive_queue_without(void **state) {
    (void)state;
    struct rpma_cq *rcq = anything();
    make_srq(0);
    assert_int_equal(kernel.cqs, 0);
    assert_ok(rpma_srq_get_rcq(srq, &rcq));
    assert_null(rcq);
    assert_ok(rpma_conn_cfg_set_compl_channel(cfg, true));
    request = kernel_request(cfg);
    assert_ptr_equal(kernel.qp_attributes[0].recv_cq, kernel.qp_attributes[0].send_cq);
    assert_ok(rpma_conn_req_delete(&request));
    assert_ok(rpma_conn_cfg_set_rcq_size(cfg, 7));
    request = kernel_request(cfg);
    assert_ptr_not_equal(kernel.qp_attributes[1].recv_cq, kernel.qp_attributes[1].send_cq);
}

static void shared_receive_queue_by_default(void **state) {
    (void)state;
    assert_ok(rpma_srq_new(peer, NULL, &srq));
    assert_int_equal(kernel.srq_attributes.attr.max_wr, 20);
    assert_int_equal(kernel.cq_sizes[0], 20);
    forget_calls();
    assert_ok(rpma_srq_delete(&srq));
    assert_string_equal(kernel.calls, "ibv_destroy_cq ibv_destroy_comp_channel ibv_destroy_srq ");
}

static void shared_channel_excludes_a_queues_own(void **state) {
    (void)state;
    struct rpma_conn_req *none = anything();
    make_srq(5);
    assert_ok(rpma_conn_cfg_set_compl_channel(cfg, true));
    assert_code(rpma_conn_req_new(peer, "somewhere", "7204", cfg, &none), RPMA_E_INVAL);
    assert_ptr_equal(none, anything());
    assert_true(logged("shared completion channel", "shared receive queue", NULL));
}

static void failed_delete_of_a_shared_receive_queue(void **state) {
    (void)state;
    make_srq(5);
    let_fail("ibv_destroy_srq", EBUSY);
    assert_code(rpma_srq_delete(&srq), RPMA_E_PROVIDER);
    assert_null(srq);
    assert_int_equal(called("ibv_destroy_cq"), 1);
}

/* ---- failures of a request ---- */

static void every_step_of_a_request_can_fail(void **state) {
    (void)state;
    static const char *const steps[] = {
        "rdma_create_event_channel", "rdma_get_cm_event",  "rdma_getaddrinfo", "rdma_create_id",
        "rdma_resolve_addr",         "rdma_resolve_route", "ibv_create_cq",    "ibv_req_notify_cq",
        "ibv_create_comp_channel",   "rdma_create_qp"};
    for (size_t i = 0; i < COUNT(steps); ++i) {
        struct rpma_conn_req *none = anything();
        forget_calls();
        let_fail(steps[i], ECONNREFUSED);
        assert_code(rpma_conn_req_new(peer, "somewhere", "7204", NULL, &none), RPMA_E_PROVIDER);
        assert_ptr_equal(none, anything());
        assert_true(logged(steps[i], "Connection refused", NULL));
        assert_nothing_is_left();
    }
}

/* librpma reports the first error, and ends all parts. */
static void every_step_of_giving_up_can_fail(void **state) {
    (void)state;
    static const char *const steps[] = {"ibv_destroy_cq", "ibv_destroy_comp_channel", "rdma_destroy_id"};
    for (size_t i = 0; i < COUNT(steps); ++i) {
        request = kernel_request(NULL);
        forget_calls();
        let_fail(steps[i], EBUSY);
        assert_code(rpma_conn_req_delete(&request), RPMA_E_PROVIDER);
        assert_null(request);
        assert_string_equal(kernel.calls,
                            "rdma_destroy_qp ibv_destroy_cq ibv_destroy_comp_channel rdma_destroy_id "
                            "rdma_destroy_event_channel ");
        let_fail(NULL, 0);
    }
}

static void sizes_beyond_the_device_are_explained(void **state) {
    (void)state;
    struct rpma_conn_req *none = anything();
    assert_ok(rpma_conn_cfg_set_cq_size(cfg, 4444));
    let_fail("ibv_create_cq", EINVAL);
    assert_code(rpma_conn_req_new(peer, "somewhere", "7204", cfg, &none), RPMA_E_PROVIDER);
    assert_true(logged("ibv_create_cq", "4444", "Invalid argument", NULL));
    assert_true(logged("remembering0", "1 to 1000", "rpma_conn_cfg_set_cq_size", NULL));

    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_ok(rpma_conn_cfg_set_sq_size(cfg, 5555));
    assert_ok(rpma_conn_cfg_set_rq_size(cfg, 6666));
    let_fail("rdma_create_qp", ENOMEM);
    assert_code(rpma_conn_req_new(peer, "somewhere", "7204", cfg, &none), RPMA_E_PROVIDER);
    assert_true(logged("rdma_create_qp", "5555", "6666", "remembering0", "Cannot allocate memory", NULL));
    assert_true(logged("at most 500 requests", "rpma_conn_cfg_set_sq_size", NULL));

    capture_log(RPMA_LOG_LEVEL_ERROR);
    let_fail("ibv_create_srq", EINVAL);
    assert_code(rpma_srq_new(peer, NULL, &srq), RPMA_E_PROVIDER);
    assert_true(logged("ibv_create_srq", "20", "Invalid argument", NULL));
    assert_true(logged("at most 250 receives", "rpma_srq_cfg_set_rq_size", NULL));
}

#define WITH_PEER(test) cmocka_unit_test_setup_teardown(test, make_kernel_peer, end_kernel)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_PEER(request_makes_its_queues),
        WITH_PEER(defaults_are_the_librarys),
        WITH_PEER(sizes_are_clipped_or_passed_on),
        WITH_PEER(receives_have_a_queue_of_their_own),
        WITH_PEER(one_channel_for_both_queues),
        WITH_PEER(shared_receive_queue_with_its_own_completions),
        WITH_PEER(shared_receive_queue_without),
        WITH_PEER(shared_receive_queue_by_default),
        WITH_PEER(shared_channel_excludes_a_queues_own),
        WITH_PEER(failed_delete_of_a_shared_receive_queue),
        WITH_PEER(every_step_of_a_request_can_fail),
        WITH_PEER(every_step_of_giving_up_can_fail),
        WITH_PEER(sizes_beyond_the_device_are_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
