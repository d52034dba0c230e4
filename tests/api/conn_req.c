/* SPDX-License-Identifier: BSD-3-Clause */
/* conn_req: tests a request for a connection, its rejection, and the calls that consume it. */
#include <string.h>

#include "ends.h"

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_peer *const peer = anything();
    struct rpma_conn_req *request = anything();
    struct rpma_conn_req *none = NULL;
    struct rpma_conn *conn = anything();
    struct rpma_conn_private_data data = {NULL, 7};
    const char *identity = anything();
    assert_code(rpma_conn_req_new(NULL, ADDRESS, "1", NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_conn_req_new(peer, NULL, "1", NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_conn_req_new(peer, ADDRESS, NULL, NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_conn_req_new(peer, ADDRESS, "1", NULL, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_delete(NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_req_delete(&none));
    assert_code(rpma_conn_req_connect(NULL, NULL, &conn), RPMA_E_INVAL);
    assert_code(rpma_conn_req_connect(&none, NULL, &conn), RPMA_E_INVAL);
    assert_code(rpma_conn_req_reject(NULL, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_reject(&none, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_recv(NULL, anything(), 0, 8, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_recv(request, NULL, 0, 8, NULL), RPMA_E_INVAL);
    /* Unlike rpma_recv, this call takes no empty receive. */
    assert_code(rpma_conn_req_recv(request, NULL, 0, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_private_data(NULL, &data), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_private_data(request, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_identity(NULL, &identity), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_identity(request, NULL), RPMA_E_INVAL);
    assert_ptr_equal(request, anything());
    assert_ptr_equal(conn, anything());
    assert_ptr_equal(identity, anything());
    assert_int_equal(data.len, 7);
}

static void port_out_of_range(void **state) {
    struct ends *ends = *state;
    struct rpma_conn_req *request = anything();
    assert_code(rpma_conn_req_new(ends->peer, ADDRESS, "70000", NULL, &request), RPMA_E_PROVIDER);
    assert_ptr_equal(request, anything());
    assert_true(logged("70000", "65535", NULL));
}

static void request_can_be_given_up(void **state) {
    struct ends *ends = *state;
    struct rpma_conn_private_data data = {anything(), 7};
    assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
    assert_ok(rpma_conn_req_get_private_data(ends->request, &data));
    assert_null(data.ptr);
    assert_int_equal(data.len, 0);
    const char *identity = anything();
    assert_ok(rpma_conn_req_get_identity(ends->request, &identity));
    assert_null(identity);
    assert_ok(rpma_conn_req_delete(&ends->request));
    assert_null(ends->request);
}

static void nobody_listens(void **state) {
    struct ends *ends = *state;
    choose_port(ends->port);
    if (ends->device == KERNEL_IWARP) {
        /* siw connects during the call. */
        assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
        assert_code(rpma_conn_req_connect(&ends->request, NULL, &ends->client), RPMA_E_PROVIDER);
        return;
    }
    ask(ends, NULL, NULL);
    await_event(ends->client, RPMA_CONN_REJECTED);
}

static void queues_too_large(void **state) {
    struct ends *ends = *state;
    struct rpma_conn_req *request = anything();
    assert_ok(rpma_conn_cfg_set_sq_size(ends->cfg, UINT32_MAX));
    assert_code(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, ends->cfg, &request), RPMA_E_PROVIDER);
    assert_ptr_equal(request, anything());
}

/* Some programs end every connection with this call. */
static void disconnecting_a_rejected_one_is_no_error_in_the_log(void **state) {
    struct ends *ends = *state;
    ask(ends, NULL, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_ok(rpma_conn_req_delete(&ends->request));
    await_event(ends->client, RPMA_CONN_REJECTED);
    capture_log(RPMA_LOG_LEVEL_WARNING);
    (void)rpma_conn_disconnect(ends->client); /* the device decides the result */
    assert_int_equal(logged_lines(), 0);
}

static void deleted_request_is_rejected(void **state) {
    struct ends *ends = *state;
    ask(ends, NULL, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_ok(rpma_conn_req_delete(&ends->request));
    assert_null(ends->request);
    await_event(ends->client, RPMA_CONN_REJECTED);
}

/* Rejects the next request, and returns what the client gets as the reason. */
static struct rpma_conn_private_data rejected(struct ends *ends, const struct rpma_conn_private_data *reason,
                                              int result) {
    struct rpma_conn_private_data got = {NULL, 7};
    ask(ends, NULL, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_code(rpma_conn_req_reject(&ends->request, reason), result);
    assert_null(ends->request);
    await_event(ends->client, RPMA_CONN_REJECTED);
    assert_ok(rpma_conn_get_private_data(ends->client, &got));
    return got;
}

static void a_rejection_has_a_reason(void **state) {
    struct ends *ends = *state;
    const struct rpma_conn_private_data reason = {(void *)"not now", 8};
    const struct rpma_conn_private_data no_bytes = {anything(), 0};
    const struct rpma_conn_private_data got = rejected(ends, &reason, 0);
    assert_true(got.len >= 8); /* some devices add zeros */
    assert_string_equal(got.ptr, "not now");
    assert_ok(rpma_conn_delete(&ends->client));
    assert_true(ends->device != SOFT_DEVICE || rejected(ends, NULL, 0).len == 0);
    assert_ok(rpma_conn_delete(&ends->client));
    (void)rejected(ends, &no_bytes, RPMA_E_INVAL);
    assert_ok(rpma_conn_delete(&ends->client));
    /* The request of this side is not a peer's. */
    assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
    assert_code(rpma_conn_req_reject(&ends->request, NULL), RPMA_E_INVAL);
    assert_null(ends->request);
}

/* Connecting fails, but still consumes the request, and the peer learns of it. */
static void consumed_by_invalid_private_data(struct ends *ends, const struct rpma_conn_private_data *data) {
    struct rpma_conn *conn = anything();
    ask(ends, NULL, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_code(rpma_conn_req_connect(&ends->request, data, &conn), RPMA_E_INVAL);
    assert_null(ends->request);
    assert_ptr_equal(conn, anything());
    assert_ok(rpma_conn_req_delete(&ends->request));
    await_event(ends->client, RPMA_CONN_REJECTED);
    assert_ok(rpma_conn_delete(&ends->client));
}

static void invalid_connect_consumes_the_request(void **state) {
    struct ends *ends = *state;
    const struct rpma_conn_private_data no_bytes = {anything(), 0};
    const struct rpma_conn_private_data no_pointer = {NULL, 8};
    consumed_by_invalid_private_data(ends, &no_bytes);
    consumed_by_invalid_private_data(ends, &no_pointer);
    assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
    assert_code(rpma_conn_req_connect(&ends->request, NULL, NULL), RPMA_E_INVAL);
    assert_null(ends->request);
}

static void too_much_private_data(void **state) {
    struct ends *ends = *state;
    if (ends->device == KERNEL_IWARP) {
        /* The device takes 512 bytes, and a length here is at most 255. */
        skip();
    }
    const struct rpma_conn_private_data data = {anything(), 197};
    struct rpma_conn *conn = anything();
    assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
    assert_code(rpma_conn_req_connect(&ends->request, &data, &conn), RPMA_E_PROVIDER);
    assert_null(ends->request);
    assert_ptr_equal(conn, anything());

    ask(ends, NULL, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_code(rpma_conn_req_connect(&ends->request, &data, &conn), RPMA_E_PROVIDER);
    assert_null(ends->request);
    await_event(ends->client, RPMA_CONN_REJECTED);
}

static void private_data_arrives_with_the_request(void **state) {
    struct ends *ends = *state;
    char sent[196];
    /* librdmacm takes 36 of InfiniBand's 92 bytes. */
    const uint8_t size = ends->device == KERNEL_INFINIBAND ? 56 : sizeof(sent);
    struct rpma_conn_private_data data = {sent, size};
    for (size_t i = 0; i < sizeof(sent); ++i) {
        sent[i] = (char)i;
    }
    ask(ends, NULL, &data);
    memset(&data, 0, sizeof(data));
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_ok(rpma_conn_req_get_private_data(ends->request, &data));
    assert_int_equal(data.len, size);
    assert_memory_equal(data.ptr, sent, size);
    assert_ok(rpma_conn_req_delete(&ends->request));
    await_event(ends->client, RPMA_CONN_REJECTED);
}

static void receive_is_there_before_the_first_message(void **state) {
    struct ends *ends = *state;
    struct rpma_mr_local *const far = reg(ends, ends->far, BUFFER_SIZE, RPMA_MR_USAGE_RECV);
    struct rpma_mr_local *const near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_SEND);
    strcpy(ends->near, "hello");
    ask(ends, NULL, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_ok(rpma_conn_req_recv(ends->request, far, 16, 64, ends));
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    await_established(ends);
    assert_ok(rpma_send(ends->client, near, 0, 6, RPMA_F_COMPLETION_ON_ERROR, NULL));
    const struct ibv_wc wc = await_completion(ends->server);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_true(wc.wr_id == (uintptr_t)ends);
    assert_int_equal(wc.byte_len, 6);
    assert_string_equal(ends->far + 16, "hello");
}

#define WITH_ENDPOINT(test) cmocka_unit_test_setup_teardown(test, make_endpoint, end_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        WITH_ENDPOINT(port_out_of_range),
        WITH_ENDPOINT(request_can_be_given_up),
        WITH_ENDPOINT(nobody_listens),
        WITH_ENDPOINT(queues_too_large),
        WITH_ENDPOINT(deleted_request_is_rejected),
        WITH_ENDPOINT(a_rejection_has_a_reason),
        WITH_ENDPOINT(disconnecting_a_rejected_one_is_no_error_in_the_log),
        WITH_ENDPOINT(invalid_connect_consumes_the_request),
        WITH_ENDPOINT(too_much_private_data),
        WITH_ENDPOINT(private_data_arrives_with_the_request),
        WITH_ENDPOINT(receive_is_there_before_the_first_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
