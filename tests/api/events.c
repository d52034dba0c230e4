/* SPDX-License-Identifier: BSD-3-Clause */
/* events: tests one queue for the events of connections, requests and
 * endpoints, and requests without queues. */
#include <string.h>
#include <unistd.h>

#include "ends.h"

/* This comes last, because it asserts. */
#include "../entries.h"
#include "../sockets.h"

#define PAIRS 5

static struct {
    struct rpma_events *events;
    struct rpma_cq *cq;
    struct rpma_ep_cfg *ep_cfg;
    struct rpma_conn_req *second;
    struct rpma_peer *other;
    struct rpma_conn *conns[2 * PAIRS];
} shared;

/* Makes an endpoint, and a configuration for connections, with the same queue for their events. */
static int begin(void **state) {
    memset(&shared, 0, sizeof(shared));
    make_peer(state);
    struct ends *ends = *state;
    choose_port(ends->port);
    assert_ok(rpma_events_new(ends->peer, &shared.events));
    assert_ok(rpma_ep_cfg_new(&shared.ep_cfg));
    assert_ok(rpma_ep_cfg_set_events(shared.ep_cfg, shared.events));
    assert_ok(rpma_conn_cfg_set_events(ends->cfg, shared.events));
    assert_ok(rpma_ep_listen_cfg(ends->peer, ADDRESS, ends->port, shared.ep_cfg, &ends->ep));
    return 0;
}

static int end(void **state) {
    struct ends *ends = *state;
    int failures = 0;
    for (int i = 0; i < 2 * PAIRS; ++i) {
        failures += rpma_conn_delete(&shared.conns[i]) != 0;
    }
    failures += rpma_conn_delete(&ends->client) != 0;
    failures += rpma_conn_delete(&ends->server) != 0;
    failures += rpma_conn_req_delete(&ends->request) != 0;
    failures += rpma_conn_req_delete(&shared.second) != 0;
    failures += rpma_ep_shutdown(&ends->ep) != 0;
    failures += rpma_ep_cfg_delete(&shared.ep_cfg) != 0;
    failures += rpma_cq_delete(&shared.cq) != 0;
    failures += rpma_events_delete(&shared.events) != 0;
    failures += rpma_peer_delete(&shared.other) != 0;
    return end_all(state) + failures;
}

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_events *events = anything();
    struct rpma_conn_req *request = anything();
    struct rpma_event event;
    struct ibv_context *device = anything();
    void *context = anything();
    assert_code(rpma_events_take(NULL, &event), RPMA_E_INVAL);
    assert_code(rpma_events_take(events, NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_set_events(NULL, events), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_get_events(NULL, &events), RPMA_E_INVAL);
    assert_code(rpma_ep_cfg_get_events(anything(), NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_set_context(NULL, context), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_context(NULL, &context), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_context(request, NULL), RPMA_E_INVAL);
    assert_code(rpma_ep_next_bare_req(NULL, &request), RPMA_E_INVAL);
    assert_code(rpma_ep_next_bare_req(anything(), NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_ibv_context(NULL, &device), RPMA_E_INVAL);
    assert_code(rpma_conn_req_get_ibv_context(request, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_prepare(NULL, anything(), NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_req_prepare(request, NULL, NULL), RPMA_E_INVAL);
}

static struct rpma_event take(int type) {
    struct rpma_event event = {0};
    assert_ok(rpma_events_take(shared.events, &event));
    assert_int_equal(event.type, type);
    assert_true((event.conn != NULL) == (type == RPMA_EVENT_CONN));
    assert_true((event.req != NULL) == (type == RPMA_EVENT_CONN_REQ));
    assert_true((event.ep != NULL) == (type == RPMA_EVENT_EP));
    return event;
}

/* One queue gives all events of a connection at both ends. */
static void everything_from_one_queue(void **state) {
    struct ends *ends = *state;
    void *context = NULL;
    int fd = -7;
    assert_code(rpma_ep_get_fd(ends->ep, &fd), RPMA_E_NOSUPP);
    assert_ok(rpma_conn_req_begin(ends->peer, ADDRESS, ends->port, ends->cfg, &ends->request));
    assert_code(rpma_conn_req_get_fd(ends->request, &fd), RPMA_E_NOSUPP);
    assert_int_equal(fd, -7);
    assert_code(rpma_conn_req_proceed(ends->request), RPMA_E_AGAIN);
    assert_ok(rpma_conn_req_set_context(ends->request, ends));
    assert_ptr_equal(take(RPMA_EVENT_CONN_REQ).req, ends->request);
    assert_ok(rpma_conn_req_proceed(ends->request));
    assert_ok(rpma_conn_req_get_context(ends->request, &context));
    assert_ptr_equal(context, ends);
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->client));
    assert_code(rpma_ep_next_conn_req(ends->ep, ends->cfg, &ends->request), RPMA_E_NO_EVENT);
    assert_ptr_equal(take(RPMA_EVENT_EP).ep, ends->ep);
    assert_ok(rpma_ep_next_conn_req(ends->ep, ends->cfg, &ends->request));
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    for (int i = 0; i < 2; ++i) {
        const struct rpma_event event = take(RPMA_EVENT_CONN);
        assert_int_equal(event.conn_event, RPMA_CONN_ESTABLISHED);
        assert_ok(rpma_conn_get_context(event.conn, &context));
        assert_ptr_equal(context, event.conn == ends->client ? ends : NULL);
    }
    assert_ok(rpma_conn_disconnect(ends->client));
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(take(RPMA_EVENT_CONN).conn_event, RPMA_CONN_CLOSED);
    }
}

/* rpma_events_next also takes these events, and returns only those of connections. */
static void what_is_no_connections(void **state) {
    struct ends *ends = *state;
    struct rpma_conn *conn = anything();
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    assert_ok(rpma_conn_req_begin(ends->peer, ADDRESS, ends->port, ends->cfg, &ends->request));
    assert_code(rpma_events_next(shared.events, &conn, &event), RPMA_E_NO_EVENT);
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->client));
    assert_code(rpma_events_next(shared.events, &conn, &event), RPMA_E_NO_EVENT);
    assert_ptr_equal(conn, anything());
    assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    assert_ok(rpma_events_next(shared.events, &conn, &event));
    assert_ptr_equal(conn, ends->client);
    assert_int_equal(event, RPMA_CONN_ESTABLISHED);
}

/* A request that blocks takes its own events itself. */
static void a_request_that_blocks(void **state) {
    struct ends *ends = *state;
    ask(ends, ends->cfg, NULL);
    (void)take(RPMA_EVENT_EP);
    answer(ends, NULL, NULL);
    assert_ptr_equal(take(RPMA_EVENT_CONN).conn, ends->client);
    await_event(ends->server, RPMA_CONN_ESTABLISHED);
}

static void a_request_that_fails(void **state) {
    struct ends *ends = *state;
    int fds[2];
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    connect_sockets(fds);
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_ok(rpma_conn_req_adopt(ends->peer, fds[1], ends->cfg, &ends->request));
    assert_int_equal(write(fds[0], "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27), 27);
    assert_ptr_equal(take(RPMA_EVENT_CONN_REQ).req, ends->request);
    assert_code(rpma_conn_req_proceed(ends->request), RPMA_E_PROVIDER);
    assert_code(rpma_conn_req_proceed(ends->request), RPMA_E_PROVIDER);
    assert_true(logged("no connection", NULL));
    close(fds[0]);
}

/* The endpoint is shut down with one request that was reported and one that was not taken. */
static void requests_that_nobody_fetched(void **state) {
    struct ends *ends = *state;
    ask(ends, NULL, NULL);
    (void)take(RPMA_EVENT_EP);
    assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    assert_ok(rpma_ep_shutdown(&ends->ep));
    await_event(ends->client, RPMA_CONN_REJECTED);
    await_event(ends->server, RPMA_CONN_REJECTED);
}

static void requests_in_order(void **state) {
    struct ends *ends = *state;
    char names[2] = {'1', '2'};
    for (int i = 0; i < 2; ++i) {
        const struct rpma_conn_private_data data = {&names[i], 1};
        assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
        assert_ok(rpma_conn_req_connect(&ends->request, &data, &shared.conns[i]));
        (void)take(RPMA_EVENT_EP);
    }
    for (int i = 0; i < 2; ++i) {
        struct rpma_conn_private_data data = {NULL, 0};
        assert_ok(rpma_ep_next_bare_req(ends->ep, &ends->request));
        assert_ok(rpma_conn_req_get_private_data(ends->request, &data));
        assert_int_equal(*(char *)data.ptr, names[i]);
        assert_ok(rpma_conn_req_delete(&ends->request));
        await_event(shared.conns[i], RPMA_CONN_REJECTED);
    }
    assert_code(rpma_ep_next_bare_req(ends->ep, &ends->request), RPMA_E_NO_EVENT);
}

/* With shared queues for completions and events, a connection takes one
 * descriptor, its TCP socket. While the two ends meet on one host, the
 * initiator has two more. The first connection opens what the queues keep. */
static void a_connection_costs_one_descriptor(void **state) {
    struct ends *ends = *state;
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    assert_ok(rpma_cq_new(ends->peer, 100, RPMA_CQ_POLLED, &shared.cq));
    assert_ok(rpma_conn_cfg_set_cq(ends->cfg, shared.cq));
    int before = entries_of("/proc/self/fd");
    for (int i = 0; i < PAIRS; ++i) {
        assert_ok(rpma_conn_req_begin(ends->peer, ADDRESS, ends->port, ends->cfg, &ends->request));
        (void)take(RPMA_EVENT_CONN_REQ);
        assert_true(i == 0 || entries_of("/proc/self/fd") == before + 2 * i);
        assert_ok(rpma_conn_req_connect(&ends->request, NULL, &shared.conns[2 * i]));
        (void)take(RPMA_EVENT_EP);
        assert_ok(rpma_ep_next_conn_req(ends->ep, ends->cfg, &ends->request));
        if (i != 0) {
            assert_in_range(entries_of("/proc/self/fd"), before + 2 * i + 2, before + 2 * i + 4);
        }
        assert_ok(rpma_conn_req_connect(&ends->request, NULL, &shared.conns[2 * i + 1]));
        for (int side = 0; side < 2; ++side) {
            assert_int_equal(take(RPMA_EVENT_CONN).conn_event, RPMA_CONN_ESTABLISHED);
        }
        if (i == 0) {
            assert_in_range(entries_of("/proc/self/fd"), before + 2, before + 3);
            before = entries_of("/proc/self/fd") - 2;
        }
        assert_int_equal(entries_of("/proc/self/fd"), before + 2 * i + 2);
    }
}

static void a_request_is_prepared(void **state) {
    struct ends *ends = *state;
    char hello[] = "hello";
    const struct rpma_conn_private_data data = {hello, sizeof(hello)};
    struct rpma_conn_private_data got = {NULL, 0};
    struct rpma_conn *conn = anything();
    struct ibv_context *device = NULL;
    struct rpma_mr_local *const mr = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_RECV);
    ask(ends, NULL, &data);
    (void)take(RPMA_EVENT_EP);
    assert_ok(rpma_ep_next_bare_req(ends->ep, &ends->request));
    assert_ok(rpma_conn_req_get_private_data(ends->request, &got));
    assert_memory_equal(got.ptr, hello, sizeof(hello));
    assert_code(rpma_conn_req_proceed(ends->request), RPMA_E_AGAIN);
    assert_code(rpma_conn_req_recv(ends->request, mr, 0, 8, NULL), RPMA_E_INVAL);
    /* Any peer on the device that the request came by can prepare it. */
    assert_ok(rpma_conn_req_get_ibv_context(ends->request, &device));
    assert_ok(rpma_peer_new(device, &shared.other));
    assert_ok(rpma_conn_req_prepare(ends->request, shared.other, ends->cfg));
    assert_ok(rpma_conn_req_proceed(ends->request));
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_conn_req_prepare(ends->request, shared.other, ends->cfg), RPMA_E_INVAL);
    assert_true(logged("once", NULL));
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    assert_ptr_equal(take(RPMA_EVENT_CONN).conn, ends->server);
    await_event(ends->client, RPMA_CONN_ESTABLISHED);
    /* A request that is not prepared cannot be connected, and is rejected. */
    assert_ok(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, NULL, &ends->request));
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &shared.conns[0]));
    (void)take(RPMA_EVENT_EP);
    assert_ok(rpma_ep_next_bare_req(ends->ep, &ends->request));
    assert_code(rpma_conn_req_connect(&ends->request, NULL, &conn), RPMA_E_INVAL);
    await_event(shared.conns[0], RPMA_CONN_REJECTED);
}

/* The endpoint is at a wildcard address, and has a descriptor of its own. Its connection has one too. */
static void an_endpoint_for_every_device(void **state) {
    struct ends *ends = *state;
    struct ibv_context *device = NULL;
    struct ibv_context *expected = NULL;
    enum { most_ports = 20 }; /* another program may have the port at another address */
    int listens = RPMA_E_PROVIDER;
    assert_ok(rpma_ep_shutdown(&ends->ep));
    for (int i = 0; i < most_ports && listens == RPMA_E_PROVIDER; ++i) {
        choose_port(ends->port);
        listens = rpma_ep_listen(ends->peer, "0.0.0.0", ends->port, &ends->ep);
    }
    assert_ok(listens);
    ask(ends, NULL, NULL);
    assert_ok(rpma_ep_next_bare_req(ends->ep, &ends->request));
    assert_ok(rpma_utils_get_ibv_context(ADDRESS, RPMA_UTIL_IBV_CONTEXT_LOCAL, &expected));
    assert_ok(rpma_conn_req_get_ibv_context(ends->request, &device));
    assert_ptr_equal(device, expected);
    assert_ok(rpma_conn_req_prepare(ends->request, ends->peer, NULL));
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->server));
    await_established(ends);
}

#define WITH_QUEUE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        /* This test counts descriptors and is first, because the engine closes
         * descriptors of earlier connections. */
        WITH_QUEUE(a_connection_costs_one_descriptor),
        cmocka_unit_test(arguments_are_checked),
        WITH_QUEUE(everything_from_one_queue),
        WITH_QUEUE(what_is_no_connections),
        WITH_QUEUE(a_request_that_blocks),
        WITH_QUEUE(a_request_that_fails),
        WITH_QUEUE(requests_that_nobody_fetched),
        WITH_QUEUE(requests_in_order),
        WITH_QUEUE(a_request_is_prepared),
        WITH_QUEUE(an_endpoint_for_every_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
