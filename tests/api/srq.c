/* SPDX-License-Identifier: BSD-3-Clause */
/* srq: tests shared receive queues. */
#include <string.h>

#include "ends.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS

/* These objects are in addition to the fixture's. */
static struct rpma_srq *the_srq;
static struct rpma_srq_cfg *the_srq_cfg;
static struct rpma_conn *second_client;
static struct rpma_conn *second_server;

static int end_with_srq(void **state) {
    struct ends *ends = *state;
    int failures = 0;
    /* The queue is deleted after its connections. */
    failures += rpma_conn_delete(&second_client) != 0;
    failures += rpma_conn_delete(&second_server) != 0;
    failures += rpma_conn_delete(&ends->client) != 0;
    failures += rpma_conn_delete(&ends->server) != 0;
    failures += rpma_srq_delete(&the_srq) != 0;
    failures += rpma_srq_cfg_delete(&the_srq_cfg) != 0;
    return failures + end_all(state);
}

/* Makes two connections whose servers take their receives from the_srq, with or
 * without a completion queue of its own. */
static void connect_both(struct ends *ends, uint32_t rcq_size) {
    assert_ok(rpma_srq_cfg_new(&the_srq_cfg));
    assert_ok(rpma_srq_cfg_set_rcq_size(the_srq_cfg, rcq_size));
    assert_ok(rpma_srq_cfg_set_rq_size(the_srq_cfg, 4));
    assert_ok(rpma_srq_new(ends->peer, the_srq_cfg, &the_srq));
    assert_ok(rpma_conn_cfg_set_srq(ends->cfg, the_srq));
    ask(ends, NULL, NULL);
    answer(ends, ends->cfg, NULL);
    await_established(ends);
    second_client = ends->client;
    second_server = ends->server;
    ask(ends, NULL, NULL);
    answer(ends, ends->cfg, NULL);
    await_established(ends);
}

static struct ibv_wc await_receive(struct rpma_cq *cq) {
    struct ibv_wc wc = {0};
    int result = rpma_cq_get_wc(cq, 1, &wc, NULL);
    while (result == RPMA_E_NO_COMPLETION) {
        assert_ok(rpma_cq_wait(cq));
        result = rpma_cq_get_wc(cq, 1, &wc, NULL);
    }
    assert_ok(result);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    return wc;
}

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_srq *srq = anything();
    struct rpma_srq *none = NULL;
    struct rpma_cq *rcq = anything();
    assert_code(rpma_srq_new(NULL, NULL, &srq), RPMA_E_INVAL);
    assert_code(rpma_srq_new(anything(), NULL, NULL), RPMA_E_INVAL);
    assert_code(rpma_srq_delete(NULL), RPMA_E_INVAL);
    assert_ok(rpma_srq_delete(&none));
    assert_code(rpma_srq_recv(NULL, anything(), 0, 8, NULL), RPMA_E_INVAL);
    assert_code(rpma_srq_recv(srq, NULL, 1, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_srq_recv(srq, NULL, 0, 1, NULL), RPMA_E_INVAL);
    assert_code(rpma_srq_get_rcq(NULL, &rcq), RPMA_E_INVAL);
    assert_code(rpma_srq_get_rcq(srq, NULL), RPMA_E_INVAL);
    assert_ptr_equal(srq, anything());
    assert_ptr_equal(rcq, anything());
}

static void defaults_give_completions_of_its_own(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *rcq = NULL;
    assert_ok(rpma_srq_new(ends->peer, NULL, &the_srq));
    assert_ok(rpma_srq_get_rcq(the_srq, &rcq));
    assert_non_null(rcq);
    assert_ok(rpma_srq_delete(&the_srq));
    assert_null(the_srq);
}

static void too_large_says_so(void **state) {
    struct ends *ends = *state;
    struct rpma_srq *srq = anything();
    assert_ok(rpma_srq_cfg_new(&the_srq_cfg));
    assert_ok(rpma_srq_cfg_set_rq_size(the_srq_cfg, UINT32_MAX));
    assert_code(rpma_srq_new(ends->peer, the_srq_cfg, &srq), RPMA_E_PROVIDER);
    assert_ptr_equal(srq, anything());
    assert_true(logged("ibv_create_srq", "4294967295", NULL));
}

static void messages_of_both_connections_arrive(struct ends *ends, struct rpma_cq *first_cq,
                                                struct rpma_cq *second_cq) {
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_SEND);
    struct rpma_mr_local *const far = reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_RECV);
    uint32_t first = 0;
    uint32_t second = 0;
    assert_ok(rpma_conn_get_qp_num(ends->server, &first));
    assert_ok(rpma_conn_get_qp_num(second_server, &second));
    strcpy(ends->near, "one");
    strcpy(ends->near + 64, "two!");
    assert_ok(rpma_srq_recv(the_srq, far, 0, 64, ends->far));
    assert_ok(rpma_srq_recv(the_srq, far, 64, 64, ends->far + 64));

    assert_ok(rpma_send(ends->client, near, 0, 4, RPMA_F_COMPLETION_ON_ERROR, NULL));
    struct ibv_wc wc = await_receive(first_cq);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.byte_len, 4);
    assert_int_equal(wc.qp_num, first);
    assert_true(wc.wr_id == (uintptr_t)ends->far);
    assert_string_equal(ends->far, "one");

    assert_ok(rpma_send(second_client, near, 64, 5, RPMA_F_COMPLETION_ON_ERROR, NULL));
    wc = await_receive(second_cq);
    assert_int_equal(wc.byte_len, 5);
    assert_int_equal(wc.qp_num, second);
    assert_true(wc.wr_id == (uintptr_t)(ends->far + 64));
    assert_string_equal(ends->far + 64, "two!");

    /* Here a message comes before its receive. InfiniBand's message waits for the
     * receive, and siw's ends the connection. */
    if (ends->device != SOFT_DEVICE) {
        return;
    }
    assert_ok(rpma_send(ends->client, NULL, 0, 0, ALWAYS, ends));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
    assert_ok(rpma_srq_recv(the_srq, NULL, 0, 0, ends));
    wc = await_receive(first_cq);
    assert_int_equal(wc.byte_len, 0);
    assert_int_equal(wc.qp_num, first);
}

static void completions_of_its_own(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *rcq = NULL;
    struct rpma_cq *of_connection = anything();
    connect_both(ends, 8);
    assert_ok(rpma_srq_get_rcq(the_srq, &rcq));
    assert_ok(rpma_conn_get_rcq(ends->server, &of_connection));
    assert_null(of_connection);
    messages_of_both_connections_arrive(ends, rcq, rcq);
}

static void completions_of_the_connections(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *none = anything();
    struct rpma_cq *first = NULL;
    struct rpma_cq *second = NULL;
    connect_both(ends, 0);
    assert_ok(rpma_srq_get_rcq(the_srq, &none));
    assert_null(none);
    assert_ok(rpma_conn_get_cq(ends->server, &first));
    assert_ok(rpma_conn_get_cq(second_server, &second));
    messages_of_both_connections_arrive(ends, first, second);
}

static void connection_has_no_receives_of_its_own(void **state) {
    struct ends *ends = *state;
    if (ends->device == KERNEL_IWARP) {
        /* The driver of rdma-core 44 takes it for granted that a connection has receives of its own. */
        skip();
    }
    connect_both(ends, 8);
    assert_code(rpma_recv(ends->server, NULL, 0, 0, NULL), RPMA_E_PROVIDER);
    assert_true(logged("cannot be posted", NULL));
}

static void full_queue_refuses(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *const far = reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_RECV);
    int result = 0;
    connect_both(ends, 8);
    /* The queue may have room for more than the four that were asked for. */
    for (int i = 0; i < 1000 && result == 0; ++i) {
        result = rpma_srq_recv(the_srq, far, 0, 64, NULL);
        assert_true(i >= 4 || result == 0);
    }
    assert_int_equal(result, RPMA_E_PROVIDER);
    assert_true(logged("full", NULL));
}

#define WITH_ENDPOINT(test) cmocka_unit_test_setup_teardown(test, make_endpoint, end_with_srq)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        WITH_ENDPOINT(defaults_give_completions_of_its_own),
        WITH_ENDPOINT(too_large_says_so),
        WITH_ENDPOINT(completions_of_its_own),
        WITH_ENDPOINT(completions_of_the_connections),
        WITH_ENDPOINT(connection_has_no_receives_of_its_own),
        WITH_ENDPOINT(full_queue_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
