/* SPDX-License-Identifier: BSD-3-Clause */
/* many: tests completion queues and event queues of many connections, waits without arming, and addresses. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "ends.h"

#define PAIRS 5
#define ALWAYS RPMA_F_COMPLETION_ALWAYS

/* There are PAIRS connections beside those of `ends`, and the queues that all of them share. */
static struct {
    struct rpma_conn *clients[PAIRS];
    struct rpma_conn *servers[PAIRS];
    struct rpma_cq *cq;
    struct rpma_cq *rcq;
    struct rpma_events *events;
} many;

static int begin(void **state) {
    memset(&many, 0, sizeof(many));
    return make_endpoint(state);
}

/* The queues outlive their connections. */
static int end(void **state) {
    struct ends *ends = *state;
    int failures = rpma_conn_delete(&ends->client) != 0;
    failures += rpma_conn_delete(&ends->server) != 0;
    for (int i = 0; i < PAIRS; ++i) {
        failures += rpma_conn_delete(&many.clients[i]) != 0;
        failures += rpma_conn_delete(&many.servers[i]) != 0;
    }
    failures += rpma_cq_delete(&many.cq) != 0;
    failures += rpma_cq_delete(&many.rcq) != 0;
    failures += rpma_events_delete(&many.events) != 0;
    return end_all(state) + failures;
}

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_peer *const peer = anything();
    struct rpma_cq *cq = anything();
    struct rpma_events *events = anything();
    struct rpma_conn *conn = anything();
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    struct sockaddr_storage address;
    int fd = -7;
    assert_code(rpma_cq_new(NULL, 1, 0, &cq), RPMA_E_INVAL);
    assert_code(rpma_cq_new(peer, 1, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_cq_new(peer, 1, RPMA_CQ_POLLED << 1, &cq), RPMA_E_INVAL);
    assert_code(rpma_cq_delete(NULL), RPMA_E_INVAL);
    assert_code(rpma_cq_wait_event(NULL, 0), RPMA_E_INVAL);
    assert_code(rpma_cq_wait_event(cq, 1), RPMA_E_INVAL);
    assert_code(rpma_cq_rearm(NULL, false), RPMA_E_INVAL);
    assert_code(rpma_events_new(NULL, &events), RPMA_E_INVAL);
    assert_code(rpma_events_new(peer, NULL), RPMA_E_INVAL);
    assert_code(rpma_events_delete(NULL), RPMA_E_INVAL);
    assert_code(rpma_events_get_fd(NULL, &fd), RPMA_E_INVAL);
    assert_code(rpma_events_get_fd(events, NULL), RPMA_E_INVAL);
    assert_code(rpma_events_next(NULL, &conn, &event), RPMA_E_INVAL);
    assert_code(rpma_events_next(events, NULL, &event), RPMA_E_INVAL);
    assert_code(rpma_events_next(events, &conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_local_addr(NULL, &address), RPMA_E_INVAL);
    assert_code(rpma_conn_get_local_addr(conn, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_peer_addr(NULL, &address), RPMA_E_INVAL);
    assert_code(rpma_conn_get_peer_addr(conn, NULL), RPMA_E_INVAL);
    assert_ptr_equal(cq, anything());
    assert_ptr_equal(events, anything());
    assert_int_equal(fd, -7);
}

/* The client side of each pair has the configuration, the server side the defaults. */
static void connect_pairs(struct ends *ends) {
    for (int i = 0; i < PAIRS; ++i) {
        ask(ends, ends->cfg, NULL);
        many.clients[i] = ends->client;
        ends->client = NULL;
        answer(ends, NULL, NULL);
        many.servers[i] = ends->server;
        ends->server = NULL;
    }
}

static int index_of(const struct rpma_conn *conn) {
    for (int i = 0; i < PAIRS; ++i) {
        if (many.clients[i] == conn) {
            return i;
        }
    }
    fail_msg("an event of a connection that is none of ours");
    return -1;
}

static int index_of_qp_num(uint32_t qp_num) {
    for (int i = 0; i < PAIRS; ++i) {
        uint32_t own = 0;
        assert_ok(rpma_conn_get_qp_num(many.clients[i], &own));
        if (own == qp_num) {
            return i;
        }
    }
    fail_msg("a completion of a connection that is none of ours");
    return -1;
}

/* Waits for the next event of each client, which must be this one. */
static void await_each(enum rpma_conn_event expected) {
    bool seen[PAIRS] = {false};
    for (int i = 0; i < PAIRS; ++i) {
        struct rpma_conn *conn = NULL;
        enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
        assert_ok(rpma_events_next(many.events, &conn, &event));
        assert_int_equal(event, expected);
        assert_false(seen[index_of(conn)]);
        seen[index_of(conn)] = true;
    }
}

static void one_queue_for_the_events_of_many(void **state) {
    struct ends *ends = *state;
    struct rpma_conn *conn = anything();
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    int fd = -1;
    assert_ok(rpma_events_new(ends->peer, &many.events));
    assert_ok(rpma_conn_cfg_set_events(ends->cfg, many.events));
    connect_pairs(ends);
    assert_code(rpma_conn_get_event_fd(many.clients[0], &fd), RPMA_E_NOSUPP);
    assert_code(rpma_conn_next_event(many.clients[0], &event), RPMA_E_NOSUPP);
    assert_int_equal(fd, -1);
    await_each(RPMA_CONN_ESTABLISHED);
    for (int i = 0; i < PAIRS; ++i) {
        await_event(many.servers[i], RPMA_CONN_ESTABLISHED);
        assert_ok(rpma_conn_disconnect(many.servers[i]));
    }
    assert_ok(rpma_events_get_fd(many.events, &fd));
    await_readable(fd);
    await_each(RPMA_CONN_CLOSED);
    make_non_blocking(fd);
    assert_code(rpma_events_next(many.events, &conn, &event), RPMA_E_NO_EVENT);
    assert_ptr_equal(conn, anything());
}

/* On the passive side a request that goes away gives no event, but its connection would. */
static void events_of_accepted_connections(void **state) {
    struct ends *ends = *state;
    struct rpma_conn *conn = NULL;
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    assert_ok(rpma_events_new(ends->peer, &many.events));
    assert_ok(rpma_conn_cfg_set_events(ends->cfg, many.events));
    ask(ends, NULL, NULL);
    answer(ends, ends->cfg, NULL);
    await_event(ends->client, RPMA_CONN_ESTABLISHED);
    assert_ok(rpma_events_next(many.events, &conn, &event));
    assert_ptr_equal(conn, ends->server);
    assert_int_equal(event, RPMA_CONN_ESTABLISHED);
}

static void a_connection_keeps_a_pointer(void **state) {
    struct ends *ends = *state;
    void *context = anything();
    assert_code(rpma_conn_set_context(NULL, context), RPMA_E_INVAL);
    assert_code(rpma_conn_get_context(NULL, &context), RPMA_E_INVAL);
    assert_code(rpma_conn_get_context(ends->client, NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_get_context(ends->client, &context));
    assert_null(context);
    assert_ok(rpma_conn_set_context(ends->client, ends));
    assert_ok(rpma_conn_get_context(ends->client, &context));
    assert_ptr_equal(context, ends);
}

static void one_queue_for_the_completions_of_many(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *got = NULL;
    bool seen[PAIRS] = {false};
    assert_ok(rpma_cq_new(ends->peer, PAIRS, 0, &many.cq));
    assert_ok(rpma_cq_new(ends->peer, PAIRS, 0, &many.rcq));
    assert_ok(rpma_conn_cfg_set_cq(ends->cfg, many.cq));
    assert_ok(rpma_conn_cfg_set_rcq(ends->cfg, many.rcq));
    connect_pairs(ends);
    struct rpma_mr_local *const mr =
        reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND);
    for (int i = 0; i < PAIRS; ++i) {
        await_event(many.clients[i], RPMA_CONN_ESTABLISHED);
        await_event(many.servers[i], RPMA_CONN_ESTABLISHED);
        assert_ok(rpma_conn_get_cq(many.clients[i], &got));
        assert_ptr_equal(got, many.cq);
        assert_ok(rpma_conn_get_rcq(many.clients[i], &got));
        assert_ptr_equal(got, many.rcq);
        assert_ok(rpma_recv(many.clients[i], mr, 8 * (size_t)i, 8, NULL));
        assert_ok(rpma_send(many.servers[i], mr, 1024, 8, ALWAYS, NULL));
    }
    for (int i = 0; i < PAIRS;) {
        struct ibv_wc wc;
        const int result = rpma_cq_get_wc(many.rcq, 1, &wc, NULL);
        if (result == RPMA_E_NO_COMPLETION) {
            assert_ok(rpma_cq_wait(many.rcq));
            continue;
        }
        assert_ok(result);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_false(seen[index_of_qp_num(wc.qp_num)]);
        seen[index_of_qp_num(wc.qp_num)] = true;
        ++i;
    }
    /* Receives do not complete in the other queue. */
    struct ibv_wc wc;
    assert_code(rpma_cq_get_wc(many.cq, 1, &wc, NULL), RPMA_E_NO_COMPLETION);
}

static void write_nothing(struct rpma_conn *conn) {
    assert_ok(rpma_write(conn, NULL, 0, NULL, 0, 0, ALWAYS, NULL));
}

static void a_queue_in_use_is_not_deleted(void **state) {
    struct ends *ends = *state;
    if (ends->device == KERNEL_IWARP) {
        /* The driver of rdma-core 44 has unmapped the queue that the kernel still has. */
        skip();
    }
    struct ibv_wc wc;
    assert_ok(rpma_cq_new(ends->peer, 10, 0, &many.cq));
    assert_ok(rpma_conn_cfg_set_cq(ends->cfg, many.cq));
    ask(ends, ends->cfg, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
    write_nothing(ends->client);
    assert_ok(rpma_cq_wait(many.cq));
    assert_ok(rpma_cq_get_wc(many.cq, 1, &wc, NULL));
    struct rpma_cq *const in_use = many.cq;
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_cq_delete(&many.cq), RPMA_E_PROVIDER);
    assert_true(logged("does a connection still use it?", NULL));
    assert_ptr_equal(many.cq, in_use);
    write_nothing(ends->client);
    assert_ok(rpma_cq_wait(many.cq));
    assert_ok(rpma_cq_get_wc(many.cq, 1, &wc, NULL));
    assert_ok(rpma_conn_delete(&ends->client));
    assert_ok(rpma_cq_delete(&many.cq));
    assert_null(many.cq);
}

static void what_excludes_each_other(void **state) {
    struct ends *ends = *state;
    struct rpma_conn_req *request = anything();
    assert_ok(rpma_cq_new(ends->peer, 10, 0, &many.cq));
    assert_ok(rpma_conn_cfg_set_cq(ends->cfg, many.cq));
    assert_ok(rpma_conn_cfg_set_compl_channel(ends->cfg, true));
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, ends->cfg, &request), RPMA_E_INVAL);
    assert_ptr_equal(request, anything());
    assert_true(logged("shared completion channel", NULL));
}

/* A queue that is only polled has no descriptor, and cannot be waited for. */
static void a_queue_that_is_only_polled(void **state) {
    struct ends *ends = *state;
    int fd = -7;
    assert_ok(rpma_cq_new(ends->peer, 10, RPMA_CQ_POLLED, &many.cq));
    assert_code(rpma_cq_get_fd(many.cq, &fd), RPMA_E_NOSUPP);
    assert_code(rpma_cq_wait(many.cq), RPMA_E_NOSUPP);
    assert_code(rpma_cq_wait_event(many.cq, 0), RPMA_E_NOSUPP);
    assert_code(rpma_cq_rearm(many.cq, false), RPMA_E_NOSUPP);
    assert_int_equal(fd, -7);
    assert_ok(rpma_conn_cfg_set_cq(ends->cfg, many.cq));
    ask(ends, ends->cfg, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
    assert_ok(rpma_write(ends->client, NULL, 0, NULL, 0, 0, ALWAYS, anything()));
    struct ibv_wc wc;
    int result = RPMA_E_NO_COMPLETION;
    while (result == RPMA_E_NO_COMPLETION) {
        result = rpma_cq_get_wc(many.cq, 1, &wc, NULL);
    }
    assert_ok(result);
    assert_true(wc.wr_id == (uintptr_t)anything());
    assert_ok(rpma_conn_delete(&ends->client));
}

/* There are more events than are acknowledged at once. A queue that is not armed makes no event. */
static void arming_by_hand(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *cq = NULL;
    int fd = -1;
    assert_ok(rpma_conn_get_cq(ends->client, &cq));
    for (int i = 0; i < 150; ++i) {
        write_nothing(ends->client);
        assert_ok(rpma_cq_wait_event(cq, i % 2 == 0 ? RPMA_WAIT_NO_REARM : 0));
        struct ibv_wc wc;
        assert_ok(rpma_cq_get_wc(cq, 1, &wc, NULL));
        if (i % 2 == 0) {
            assert_ok(rpma_cq_rearm(cq, false));
        }
    }
    assert_ok(rpma_cq_get_fd(cq, &fd));
    make_non_blocking(fd);
    write_nothing(ends->client);
    await_readable(fd);
    assert_ok(rpma_cq_wait_event(cq, RPMA_WAIT_NO_REARM));
    write_nothing(ends->client); /* the write is complete when it is posted */
    assert_code(rpma_cq_wait_event(cq, 0), RPMA_E_NO_COMPLETION);
    /* The queue is armed for solicited completions, and a write is none. */
    assert_ok(rpma_cq_rearm(cq, true));
    write_nothing(ends->client);
    assert_code(rpma_cq_wait_event(cq, 0), RPMA_E_NO_COMPLETION);
    assert_ok(rpma_cq_rearm(cq, false));
    write_nothing(ends->client);
    await_readable(fd);
    assert_ok(rpma_cq_wait_event(cq, 0));
}

static void arming_by_hand_on_a_shared_channel(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *cq = NULL;
    bool is_rcq = true;
    int fd = -1;
    assert_ok(rpma_conn_cfg_set_compl_channel(ends->cfg, true));
    ask(ends, ends->cfg, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
    write_nothing(ends->client);
    assert_ok(rpma_conn_wait(ends->client, RPMA_WAIT_NO_REARM, &cq, &is_rcq));
    assert_false(is_rcq);
    assert_ok(rpma_conn_get_compl_fd(ends->client, &fd));
    make_non_blocking(fd);
    write_nothing(ends->client);
    assert_code(rpma_conn_wait(ends->client, 0, &cq, NULL), RPMA_E_NO_COMPLETION);
    assert_ok(rpma_cq_rearm(cq, false));
    write_nothing(ends->client);
    await_readable(fd);
    assert_ok(rpma_conn_wait(ends->client, 0, &cq, NULL));
}

static bool same_place(const struct sockaddr_storage *one, const struct sockaddr_storage *other) {
    const struct sockaddr_in *a = (const struct sockaddr_in *)one;
    const struct sockaddr_in *b = (const struct sockaddr_in *)other;
    return a->sin_family == b->sin_family && a->sin_port == b->sin_port &&
           a->sin_addr.s_addr == b->sin_addr.s_addr;
}

static void addresses(void **state) {
    struct ends *ends = *state;
    struct sockaddr_storage near;
    struct sockaddr_storage far;
    struct sockaddr_storage listening;
    struct sockaddr_in wanted = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    if (ends->device != SOFT_DEVICE) {
        /* The device has no other address. */
        assert_int_equal(inet_pton(AF_INET, ADDRESS, &wanted.sin_addr), 1);
    }
    assert_ok(rpma_conn_cfg_set_source_addr(ends->cfg, (const struct sockaddr *)&wanted));
    ask(ends, ends->cfg, NULL);
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_ok(rpma_conn_req_get_peer_addr(ends->request, &far));
    assert_int_equal(((struct sockaddr_in *)&far)->sin_addr.s_addr, wanted.sin_addr.s_addr);
    assert_ok(rpma_conn_req_get_local_addr(ends->request, &near));
    assert_ok(rpma_ep_get_local_addr(ends->ep, &listening));
    assert_true(same_place(&near, &listening));
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    await_established(ends);
    assert_ok(rpma_conn_get_local_addr(ends->client, &near));
    assert_ok(rpma_conn_get_peer_addr(ends->server, &far));
    assert_true(same_place(&near, &far));
    assert_ok(rpma_conn_get_peer_addr(ends->client, &far));
    assert_true(same_place(&far, &listening));
    assert_ok(rpma_conn_get_local_addr(ends->server, &near));
    assert_true(same_place(&near, &listening));
}

/* A connection is made with any values, because TCP ignores them. */
static void retries_and_inline_size(void **state) {
    struct ends *ends = *state;
    assert_ok(rpma_conn_cfg_set_retry_count(ends->cfg, 1));
    assert_ok(rpma_conn_cfg_set_rnr_retry_count(ends->cfg, 0));
    assert_ok(rpma_conn_cfg_set_ack_timeout(ends->cfg, 14));
    assert_ok(rpma_conn_cfg_set_inline_size(ends->cfg, 64));
    ask(ends, ends->cfg, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
    struct rpma_mr_local *const near =
        reg(ends, ends->near, 64, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
    struct rpma_mr_remote *const far =
        remote_of(ends, reg(ends, ends->far, 64, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC));
    memset(ends->near, 'a', 64);
    assert_ok(rpma_write(ends->client, far, 0, near, 0, 64, ALWAYS, NULL));
    memset(ends->near, 'b', 64);
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
    assert_ok(rpma_read(ends->client, near, 0, far, 0, 64, ALWAYS, NULL));
    assert_int_equal(await_completion(ends->client).status, IBV_WC_SUCCESS);
    for (int i = 0; i < 64; ++i) {
        assert_int_equal(ends->near[i], 'a');
    }
}

/* siw's driver maps the queues of these requests at each offset of its first pages, and takes one of those
 * for a failure (src/verbs/siw.hpp). */
static void requests_with_small_queues(void **state) {
    struct ends *ends = *state;
    struct rpma_conn_req *requests[100] = {NULL};
    for (int i = 0; i < 100; ++i) {
        assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, NULL, &requests[i]));
    }
    for (int i = 0; i < 100; ++i) {
        assert_ok(rpma_conn_req_delete(&requests[i]));
    }
}

static void too_much_inline(void **state) {
    struct ends *ends = *state;
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_ok(rpma_conn_cfg_set_inline_size(ends->cfg, 1 << 30));
    assert_code(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, ends->cfg, &ends->request),
                RPMA_E_PROVIDER);
    assert_true(logged("inline", "1073741824", NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test_setup_teardown(one_queue_for_the_events_of_many, begin, end),
        cmocka_unit_test_setup_teardown(events_of_accepted_connections, begin, end),
        cmocka_unit_test_setup_teardown(a_connection_keeps_a_pointer, make_connection, end_all),
        cmocka_unit_test_setup_teardown(one_queue_for_the_completions_of_many, begin, end),
        cmocka_unit_test_setup_teardown(a_queue_in_use_is_not_deleted, begin, end),
        cmocka_unit_test_setup_teardown(what_excludes_each_other, begin, end),
        cmocka_unit_test_setup_teardown(a_queue_that_is_only_polled, begin, end),
        cmocka_unit_test_setup_teardown(arming_by_hand, make_connection, end_all),
        cmocka_unit_test_setup_teardown(arming_by_hand_on_a_shared_channel, make_endpoint, end_all),
        cmocka_unit_test_setup_teardown(addresses, make_endpoint, end_all),
        cmocka_unit_test_setup_teardown(retries_and_inline_size, make_endpoint, end_all),
        cmocka_unit_test_setup_teardown(requests_with_small_queues, make_endpoint, end_all),
        cmocka_unit_test_setup_teardown(too_much_inline, make_endpoint, end_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
