/* SPDX-License-Identifier: BSD-3-Clause */
/* conn: tests a connection's events, private data, queues and end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ends.h"

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_conn *conn = anything();
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    struct rpma_conn_private_data data = {NULL, 7};
    struct rpma_cq *cq = anything();
    uint32_t number = 7;
    const char *link = NULL;
    int fd = -7;
    assert_code(rpma_conn_get_event_fd(NULL, &fd), RPMA_E_INVAL);
    assert_code(rpma_conn_get_event_fd(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_next_event(NULL, &event), RPMA_E_INVAL);
    assert_code(rpma_conn_next_event(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_private_data(NULL, &data), RPMA_E_INVAL);
    assert_code(rpma_conn_get_private_data(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_apply_remote_peer_cfg(NULL, anything()), RPMA_E_INVAL);
    assert_code(rpma_conn_apply_remote_peer_cfg(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_qp_num(NULL, &number), RPMA_E_INVAL);
    assert_code(rpma_conn_get_qp_num(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_link(NULL, &link), RPMA_E_INVAL);
    assert_code(rpma_conn_get_link(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_paths(NULL, &fd), RPMA_E_INVAL);
    assert_code(rpma_conn_get_paths(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_identity(NULL, &link), RPMA_E_INVAL);
    assert_code(rpma_conn_get_identity(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_cq(NULL, &cq), RPMA_E_INVAL);
    assert_code(rpma_conn_get_cq(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_rcq(NULL, &cq), RPMA_E_INVAL);
    assert_code(rpma_conn_get_rcq(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_compl_fd(NULL, &fd), RPMA_E_INVAL);
    assert_code(rpma_conn_get_compl_fd(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_wait(NULL, 0, &cq, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_wait(conn, 0, NULL, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_disconnect(NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_delete(NULL), RPMA_E_INVAL);
    assert_ptr_equal(cq, anything());
    assert_int_equal(event, RPMA_CONN_UNDEFINED);
    assert_int_equal(data.len, 7);
    assert_int_equal(number, 7);
    assert_int_equal(fd, -7);
    conn = NULL;
    assert_ok(rpma_conn_delete(&conn));
}

/* Returns whether the connection has this private data. On InfiniBand the peer's private data has its maximum
 * length, with zeros after the sent bytes. */
static bool has_private_data(const struct ends *ends, const struct rpma_conn *conn, const char *text) {
    struct rpma_conn_private_data data = {NULL, 0};
    assert_ok(rpma_conn_get_private_data(conn, &data));
    size_t length = data.len;
    while (ends->device == KERNEL_INFINIBAND && length > 0 && ((const char *)data.ptr)[length - 1] == 0) {
        --length;
    }
    return length == strlen(text) && memcmp(data.ptr, text, length) == 0;
}

static bool has_none(const struct rpma_conn *conn) {
    struct rpma_conn_private_data data = {NULL, 0};
    assert_ok(rpma_conn_get_private_data(conn, &data));
    return data.ptr == NULL && data.len == 0;
}

static void private_data_goes_both_ways(void **state) {
    struct ends *ends = *state;
    const struct rpma_conn_private_data question = {"question", 8};
    const struct rpma_conn_private_data reply = {"the answer", 10};
    ask(ends, NULL, &question);
    answer(ends, NULL, &reply);
    /* The side that answers has the private data from the start. The side
     * that asked gets it with the event. */
    assert_true(has_private_data(ends, ends->server, "question"));
    assert_true(has_none(ends->client));
    await_established(ends);
    assert_true(has_private_data(ends, ends->client, "the answer"));
    assert_true(has_private_data(ends, ends->server, "question"));
}

static void private_data_can_be_absent(void **state) {
    struct ends *ends = *state;
    if (ends->device == KERNEL_INFINIBAND) {
        assert_true(has_private_data(ends, ends->client, ""));
        assert_true(has_private_data(ends, ends->server, ""));
        return;
    }
    assert_true(has_none(ends->client));
    assert_true(has_none(ends->server));
}

static void no_event_is_no_event(void **state) {
    struct ends *ends = *state;
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    int fd = -1;
    assert_ok(rpma_conn_get_event_fd(ends->client, &fd));
    make_non_blocking(fd);
    assert_code(rpma_conn_next_event(ends->client, &event), RPMA_E_NO_EVENT);
    assert_int_equal(event, RPMA_CONN_UNDEFINED);
    assert_int_equal(logged_lines(), 0);
    assert_ok(rpma_conn_disconnect(ends->server));
    await_readable(fd);
    await_event(ends->client, RPMA_CONN_CLOSED);
}

static void disconnect_reaches_both(void **state) {
    struct ends *ends = *state;
    assert_ok(rpma_conn_disconnect(ends->client));
    if (ends->device != KERNEL_INFINIBAND) {
        await_event(ends->client, RPMA_CONN_CLOSED);
    }
    await_event(ends->server, RPMA_CONN_CLOSED);
    assert_ok(rpma_conn_disconnect(ends->server));
    if (ends->device == KERNEL_INFINIBAND) {
        /* The event comes with the other end's answer. */
        await_event(ends->client, RPMA_CONN_CLOSED);
    }
    assert_ok(rpma_conn_delete(&ends->client));
    assert_null(ends->client);
}

static void deleting_disconnects(void **state) {
    struct ends *ends = *state;
    assert_ok(rpma_conn_delete(&ends->client));
    await_event(ends->server, RPMA_CONN_CLOSED);
}

static void connection_can_be_deleted_before_it_is_established(void **state) {
    struct ends *ends = *state;
    ask(ends, NULL, NULL);
    assert_ok(rpma_conn_delete(&ends->client));
    ask(ends, NULL, NULL);
}

struct waiting {
    struct rpma_conn *conn;
    enum rpma_conn_event event;
    int result;
};

static void *wait_for_event(void *argument) {
    struct waiting *waiting = argument;
    waiting->result = rpma_conn_next_event(waiting->conn, &waiting->event);
    return NULL;
}

/* The event wakes a thread that waits already. */
static void event_wakes_a_waiting_thread(void **state) {
    struct ends *ends = *state;
    pthread_t thread;
    ask(ends, NULL, NULL);
    struct waiting waiting = {.conn = ends->client, .event = RPMA_CONN_UNDEFINED, .result = -1};
    assert_int_equal(pthread_create(&thread, NULL, wait_for_event, &waiting), 0);
    answer(ends, NULL, NULL);
    await_event(ends->server, RPMA_CONN_ESTABLISHED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(waiting.result);
    assert_int_equal(waiting.event, RPMA_CONN_ESTABLISHED);
}

static void queue_pairs_have_numbers(void **state) {
    struct ends *ends = *state;
    uint32_t client = 0;
    uint32_t server = 0;
    assert_ok(rpma_conn_get_qp_num(ends->client, &client));
    assert_ok(rpma_conn_get_qp_num(ends->server, &server));
    assert_true(client != server);
}

/* Both ends are in this process, so they share memory unless the tests run over TCP or TLS. */
static void the_link_is_told(void **state) {
    struct ends *ends = *state;
    const char *const memory = getenv("SOFTRDMA_SHM");
    const char *expected = memory != NULL && strcmp(memory, "off") == 0 ? "tcp" : "memory";
    const char *client = NULL;
    const char *server = NULL;
    if (getenv("RPMA_TLS") != NULL) {
        expected = "tls";
    }
    if (ends->device != SOFT_DEVICE) {
        expected = "device";
    }
    assert_ok(rpma_conn_get_link(ends->client, &client));
    assert_ok(rpma_conn_get_link(ends->server, &server));
    assert_string_equal(client, expected);
    assert_string_equal(server, expected);
    int paths = 7;
    assert_ok(rpma_conn_get_paths(ends->client, &paths));
    assert_int_equal(paths, -1); /* this host's connections have one path */
}

/* The tests' keys have the identity test. */
static void expect_identity(const char *identity) {
    if (getenv("RPMA_TLS") != NULL) {
        assert_non_null(identity);
        assert_string_equal(identity, "test");
    } else {
        assert_null(identity);
    }
}

static void the_identity_is_told_before_the_answer_and_after_it(void **state) {
    struct ends *ends = *state;
    const char *of_request = anything();
    const char *client = anything();
    const char *server = anything();
    ask(ends, NULL, NULL);
    if (ends->device == SOFT_DEVICE) {
        assert_code(rpma_conn_get_identity(ends->client, &client), RPMA_E_AGAIN);
        assert_ptr_equal(client, anything());
    }
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_ok(rpma_conn_req_get_identity(ends->request, &of_request));
    expect_identity(of_request);
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    await_established(ends);
    assert_ok(rpma_conn_get_identity(ends->client, &client));
    expect_identity(client);
    assert_ok(rpma_conn_get_identity(ends->server, &server));
    assert_ptr_equal(server, of_request);
}

static void default_has_one_queue_and_no_shared_channel(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *cq = NULL;
    struct rpma_cq *rcq = anything();
    int fd = -7;
    assert_ok(rpma_conn_get_cq(ends->client, &cq));
    assert_non_null(cq);
    assert_ok(rpma_conn_get_rcq(ends->client, &rcq));
    assert_null(rcq);
    assert_code(rpma_conn_get_compl_fd(ends->client, &fd), RPMA_E_NOT_SHARED_CHNL);
    assert_code(rpma_conn_wait(ends->client, 0, &rcq, NULL), RPMA_E_NOT_SHARED_CHNL);
    assert_null(rcq);
    assert_int_equal(fd, -7);
}

/* Both kinds of completion come on one channel. */
static void shared_channel_serves_both_queues(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *cq = NULL;
    struct rpma_cq *rcq = NULL;
    struct rpma_cq *ready = NULL;
    struct ibv_wc wc;
    bool is_rcq = false;
    int fd = -1;
    struct rpma_mr_local *const near = reg(ends, ends->near, 64, RPMA_MR_USAGE_SEND);
    struct rpma_mr_local *const far = reg(ends, ends->far, 64, RPMA_MR_USAGE_RECV);
    assert_ok(rpma_conn_cfg_set_rcq_size(ends->cfg, 4));
    assert_ok(rpma_conn_cfg_set_compl_channel(ends->cfg, true));
    ask(ends, NULL, NULL);
    answer(ends, ends->cfg, NULL);
    await_established(ends);
    assert_ok(rpma_conn_get_cq(ends->server, &cq));
    assert_ok(rpma_conn_get_rcq(ends->server, &rcq));
    assert_non_null(rcq);
    assert_ptr_not_equal(cq, rcq);
    assert_code(rpma_cq_wait(cq), RPMA_E_SHARED_CHANNEL);
    assert_code(rpma_cq_wait(rcq), RPMA_E_SHARED_CHANNEL);
    assert_ok(rpma_conn_get_compl_fd(ends->server, &fd));
    make_non_blocking(fd);
    assert_code(rpma_conn_wait(ends->server, 0, &ready, &is_rcq), RPMA_E_NO_COMPLETION);
    assert_null(ready);

    assert_ok(rpma_recv(ends->server, far, 0, 64, NULL));
    assert_ok(rpma_send(ends->client, near, 0, 64, RPMA_F_COMPLETION_ON_ERROR, NULL));
    await_readable(fd);
    assert_ok(rpma_conn_wait(ends->server, 0, &ready, &is_rcq));
    assert_ptr_equal(ready, rcq);
    assert_true(is_rcq);
    assert_ok(rpma_cq_get_wc(rcq, 1, &wc, NULL));
    assert_int_equal(wc.opcode, IBV_WC_RECV);

    assert_ok(rpma_write(ends->server, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, NULL));
    await_readable(fd);
    assert_ok(rpma_conn_wait(ends->server, 0, &ready, NULL));
    assert_ptr_equal(ready, cq);
    assert_ok(rpma_cq_get_wc(cq, 1, &wc, NULL));
    assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
}

#define WITH_ENDPOINT(test) cmocka_unit_test_setup_teardown(test, make_endpoint, end_all)
#define WITH_CONNECTION(test) cmocka_unit_test_setup_teardown(test, make_connection, end_all)

/* At level debug the log has a line for each state of both ends' ids, with the peer. */
static void the_log_tells_each_state(void **state) {
    struct ends *ends = *state;
    char to_server[8];
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    snprintf(to_server, sizeof(to_server), ":%s:", ends->port);
    capture_log(RPMA_LOG_LEVEL_DEBUG);
    ask(ends, NULL, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
    assert_ok(rpma_conn_disconnect(ends->client));
    await_event(ends->server, RPMA_CONN_CLOSED);
    assert_true(logged("peer", to_server, "address resolved, was idle", NULL));
    assert_true(logged("peer", to_server, "route resolved, was address resolved", NULL));
    assert_true(logged("peer", to_server, "connecting, was route resolved", NULL));
    assert_true(logged("peer", to_server, "connected, was connecting", NULL));
    assert_true(logged("peer", "requested, was idle", NULL));
    assert_true(logged("peer", "connecting, was requested", NULL));
    assert_true(logged("peer", "closed, was connected", NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        WITH_ENDPOINT(private_data_goes_both_ways),
        WITH_CONNECTION(private_data_can_be_absent),
        WITH_CONNECTION(no_event_is_no_event),
        WITH_ENDPOINT(the_log_tells_each_state),
        WITH_CONNECTION(disconnect_reaches_both),
        WITH_CONNECTION(deleting_disconnects),
        WITH_ENDPOINT(connection_can_be_deleted_before_it_is_established),
        WITH_ENDPOINT(event_wakes_a_waiting_thread),
        WITH_CONNECTION(queue_pairs_have_numbers),
        WITH_CONNECTION(the_link_is_told),
        WITH_ENDPOINT(the_identity_is_told_before_the_answer_and_after_it),
        WITH_CONNECTION(default_has_one_queue_and_no_shared_channel),
        WITH_ENDPOINT(shared_channel_serves_both_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
