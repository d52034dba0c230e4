/* SPDX-License-Identifier: BSD-3-Clause */
/* mr_for_conn: tests memory that only one connection's other side reaches. */
#include <string.h>

#include "ends.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS
#define EVERYTHING 0xdf /* but persistence */

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_mr_local *mr = anything();
    struct rpma_conn *const conn = anything();
    assert_code(rpma_conn_req_mr_reg(NULL, anything(), 8, RPMA_MR_USAGE_SEND, &mr), RPMA_E_INVAL);
    assert_code(rpma_conn_mr_reg(NULL, anything(), 8, RPMA_MR_USAGE_SEND, &mr), RPMA_E_INVAL);
    assert_code(rpma_conn_mr_reg(conn, NULL, 8, RPMA_MR_USAGE_SEND, &mr), RPMA_E_INVAL);
    assert_code(rpma_conn_mr_reg(conn, anything(), 0, RPMA_MR_USAGE_SEND, &mr), RPMA_E_INVAL);
    assert_code(rpma_conn_mr_reg(conn, anything(), 8, 0, &mr), RPMA_E_INVAL);
    assert_code(rpma_conn_mr_reg(conn, anything(), 8, 0x100, &mr), RPMA_E_INVAL);
    assert_code(rpma_conn_mr_reg(conn, anything(), 8, RPMA_MR_USAGE_SEND, NULL), RPMA_E_INVAL);
    assert_ptr_equal(mr, anything());
}

/* This is a second pair of ends, whose server's end is of the same peer. */
struct others {
    struct rpma_conn *client;
    struct rpma_conn *server;
};

static void connect_others(struct ends *ends, struct others *others) {
    struct rpma_conn *const client = ends->client;
    struct rpma_conn *const server = ends->server;
    ask(ends, NULL, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
    *others = (struct others){ends->client, ends->server};
    ends->client = client;
    ends->server = server;
}

static void delete_others(struct others *others) {
    assert_ok(rpma_conn_delete(&others->client));
    assert_ok(rpma_conn_delete(&others->server));
}

static enum ibv_wc_status status_of_write(struct rpma_conn *client, struct rpma_mr_remote *far,
                                          const struct rpma_mr_local *near) {
    assert_ok(rpma_write(client, far, 0, near, 0, 8, RPMA_F_COMPLETION_ON_ERROR, NULL));
    assert_ok(rpma_flush(client, far, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL));
    return await_completion(client).status;
}

static void others_do_not_reach_it(struct ends *ends, struct rpma_mr_local *mine) {
    struct others others;
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC);
    struct rpma_mr_remote *const far = remote_of(ends, mine);
    connect_others(ends, &others);
    memset(ends->near, 'x', 8);
    /* The write ends the connection, perhaps before the next flush is posted. */
    assert_int_not_equal(status_of_write(others.client, far, near), IBV_WC_SUCCESS);
    await_event(others.client, RPMA_CONN_CLOSED);
    assert_int_equal(ends->far[0], 0);
    assert_int_equal(status_of_write(ends->client, far, near), IBV_WC_SUCCESS);
    assert_memory_equal(ends->far, ends->near, 8);
    delete_others(&others);
}

static void of_a_request(void **state) {
    struct ends *ends = *state;
    ask(ends, NULL, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_ok(
        rpma_conn_req_mr_reg(ends->request, ends->far, BUFFER_SIZE, EVERYTHING, &ends->local[ends->locals]));
    struct rpma_mr_local *const mine = ends->local[ends->locals++];
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    await_established(ends);
    others_do_not_reach_it(ends, mine);
}

static void of_a_connection(void **state) {
    struct ends *ends = *state;
    assert_ok(rpma_conn_mr_reg(ends->server, ends->far, BUFFER_SIZE, EVERYTHING, &ends->local[ends->locals]));
    others_do_not_reach_it(ends, ends->local[ends->locals++]);
}

static void it_may_outlive_its_connection(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *mr = NULL;
    assert_ok(rpma_conn_mr_reg(ends->server, ends->far, BUFFER_SIZE, EVERYTHING, &mr));
    assert_ok(rpma_conn_delete(&ends->server));
    assert_ok(rpma_mr_dereg(&mr));
    assert_null(mr);
}

static void a_request_that_is_not_ready(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *mr = anything();
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_ok(rpma_conn_req_begin(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
    assert_code(rpma_conn_req_mr_reg(ends->request, ends->far, BUFFER_SIZE, EVERYTHING, &mr), RPMA_E_INVAL);
    assert_ptr_equal(mr, anything());
    assert_true(logged("rpma_conn_req_proceed", NULL));
}

/* The program may still use bound memory. Any of its connections sends it, and reads into it. */
static void the_program_uses_it_anywhere(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *mine = NULL;
    struct rpma_mr_remote *const far =
        remote_of(ends, reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC));
    assert_ok(rpma_conn_mr_reg(ends->server, ends->near, BUFFER_SIZE, EVERYTHING, &mine));
    memset(ends->near, 'x', 8);
    assert_ok(rpma_write(ends->client, far, 0, mine, 0, 8, ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
    assert_ok(rpma_read(ends->client, mine, 8, far, 0, 8, ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
    assert_memory_equal(ends->near + 8, ends->near, 8);
    assert_ok(rpma_mr_dereg(&mine));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test_setup_teardown(of_a_request, make_endpoint, end_all),
        cmocka_unit_test_setup_teardown(of_a_connection, make_connection, end_all),
        cmocka_unit_test_setup_teardown(it_may_outlive_its_connection, make_connection, end_all),
        cmocka_unit_test_setup_teardown(a_request_that_is_not_ready, make_endpoint, end_all),
        cmocka_unit_test_setup_teardown(the_program_uses_it_anywhere, make_connection, end_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
