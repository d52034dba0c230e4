/* SPDX-License-Identifier: BSD-3-Clause */
/* end: tests the end of a connection, its reason, the operations that were posted
 * before it, and the limits of a device. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ends.h"

/* This comes last, because it asserts. */
#include "../sockets.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_peer_limits limits;
    int error = -7;
    assert_code(rpma_conn_drain(NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_get_error(NULL, &error), RPMA_E_INVAL);
    assert_code(rpma_conn_get_error(anything(), NULL), RPMA_E_INVAL);
    assert_code(rpma_peer_get_limits(NULL, &limits), RPMA_E_INVAL);
    assert_code(rpma_peer_get_limits(anything(), NULL), RPMA_E_INVAL);
    assert_int_equal(error, -7);
}

static void ended_by(const struct rpma_conn *conn, int expected) {
    int error = -7;
    assert_ok(rpma_conn_get_error(conn, &error));
    assert_string_equal(strerror(error), strerror(expected));
}

static void in_order(void **state) {
    struct ends *ends = *state;
    ended_by(ends->client, 0);
    assert_ok(rpma_conn_disconnect(ends->client));
    await_event(ends->client, RPMA_CONN_CLOSED);
    await_event(ends->server, RPMA_CONN_CLOSED);
    ended_by(ends->client, 0);
    ended_by(ends->server, 0);
}

static void refused(void **state) {
    struct ends *ends = *state;
    assert_ok(rpma_ep_shutdown(&ends->ep));
    ask(ends, NULL, NULL);
    await_event(ends->client, RPMA_CONN_REJECTED);
    ended_by(ends->client, ECONNREFUSED);
}

/* A request without the right ends the connection at both sides. */
static void against_the_protocol(void **state) {
    struct ends *ends = *state;
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    capture_log(RPMA_LOG_LEVEL_ERROR);
    struct rpma_mr_local *const mr = reg(ends, ends->near, 8, RPMA_MR_USAGE_WRITE_SRC);
    const struct rpma_op op = {
        .type = RPMA_OP_WRITE, .flags = ALWAYS, .local = mr, .len = 8, .remote_addr = 8, .remote_key = 8};
    assert_ok(rpma_post(ends->client, &op, 1, NULL));
    await_event(ends->client, RPMA_CONN_CLOSED);
    await_event(ends->server, RPMA_CONN_CLOSED);
    ended_by(ends->client, EPROTO);
    ended_by(ends->server, EPROTO);
}

/* One listener speaks another protocol, and one goes away with a reset. */
static void by_a_stranger(void **state) {
    struct ends *ends = *state;
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    capture_log(RPMA_LOG_LEVEL_ERROR);
    for (int i = 0; i < 2; ++i) {
        uint16_t port = 0;
        char word[] = "220 example.org ESMTP, and more than the twenty bytes\r\n";
        const int listener = listening_socket(&port);
        snprintf(ends->port, sizeof(ends->port), "%u", (unsigned)port);
        ask(ends, NULL, NULL);
        const int fd = accept(listener, NULL, NULL);
        if (i == 0) {
            assert_true(write(fd, word, sizeof(word)) > 0);
            await_event(ends->client, RPMA_CONN_LOST);
            ended_by(ends->client, EPROTO);
        } else {
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
        }
        close(fd);
        close(listener);
        if (i == 1) {
            await_event(ends->client, RPMA_CONN_REJECTED);
            ended_by(ends->client, ECONNRESET);
        }
        assert_ok(rpma_conn_delete(&ends->client));
    }
}

/* ---- operations that are posted before ---- */

#define LENGTH ((size_t)32 << 20)

static struct rpma_mr_local *big[2];

static int end_big(void **state) {
    struct ends *ends = *state;
    int failures = rpma_conn_delete(&ends->client) != 0;
    failures += rpma_conn_delete(&ends->server) != 0;
    failures += rpma_mr_dereg(&big[0]) != 0;
    failures += rpma_mr_dereg(&big[1]) != 0;
    return end_all(state) + failures;
}

/* The bytes that are written and read are more than TCP takes at once.
 * At the end the far side has all of them. */
static void behind_what_is_posted(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *cq = NULL;
    struct ibv_wc wc;
    void *memory[2];
    uint32_t key = 0;
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    for (int i = 0; i < 2; ++i) {
        assert_ok(rpma_mr_alloc(ends->peer, LENGTH, 0xff & ~RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &big[i]));
        assert_ok(rpma_mr_get_ptr(big[i], &memory[i]));
    }
    memset(memory[0], 'x', LENGTH);
    assert_ok(rpma_mr_get_key(big[1], &key));
    const struct rpma_op ops[] = {
        {.type = RPMA_OP_WRITE,
         .flags = ALWAYS,
         .local = big[0],
         .len = LENGTH,
         .remote_addr = (uintptr_t)memory[1],
         .remote_key = key},
        {.type = RPMA_OP_READ,
         .flags = ALWAYS,
         .local = big[0],
         .len = 8,
         .remote_addr = (uintptr_t)memory[1] + LENGTH - 8,
         .remote_key = key},
    };
    assert_ok(rpma_post(ends->client, ops, 2, NULL));
    assert_ok(rpma_conn_drain(ends->client));
    await_event(ends->client, RPMA_CONN_CLOSED);
    await_event(ends->server, RPMA_CONN_CLOSED);
    assert_ok(rpma_conn_get_cq(ends->client, &cq));
    for (int i = 0; i < 2; ++i) {
        assert_ok(rpma_cq_get_wc(cq, 1, &wc, NULL));
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
    }
    assert_memory_equal(memory[0], memory[1], LENGTH);
    ended_by(ends->client, 0);
    ended_by(ends->server, 0);
}

static void behind_nothing(void **state) {
    struct ends *ends = *state;
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    assert_ok(rpma_conn_drain(ends->server));
    await_event(ends->client, RPMA_CONN_CLOSED);
    await_event(ends->server, RPMA_CONN_CLOSED);
}

static void queues_of_the_limits_can_be_had(void **state) {
    struct ends *ends = *state;
    struct rpma_peer_limits limits = {0};
    assert_ok(rpma_peer_get_limits(ends->peer, &limits));
    assert_true(limits.max_cq_size > 0 && limits.max_mr > 0 && limits.max_mr_size > 0);
    assert_int_equal(limits.reserved[0], 0);
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    assert_ok(rpma_conn_cfg_set_sq_size(ends->cfg, limits.max_sq_size));
    assert_ok(rpma_conn_cfg_set_rq_size(ends->cfg, limits.max_rq_size));
    assert_ok(rpma_conn_cfg_set_inline_size(ends->cfg, limits.max_inline_size));
    ask(ends, ends->cfg, NULL);
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_ok(rpma_conn_cfg_set_inline_size(ends->cfg, limits.max_inline_size + 1));
    assert_code(rpma_ep_next_conn_req(ends->ep, ends->cfg, &ends->request), RPMA_E_PROVIDER);
}

#define CONNECTED(test) cmocka_unit_test_setup_teardown(test, make_connection, end_all)
#define LISTENING(test) cmocka_unit_test_setup_teardown(test, make_endpoint, end_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        CONNECTED(in_order),
        LISTENING(refused),
        CONNECTED(against_the_protocol),
        LISTENING(by_a_stranger),
        cmocka_unit_test_setup_teardown(behind_what_is_posted, make_connection, end_big),
        CONNECTED(behind_nothing),
        LISTENING(queues_of_the_limits_can_be_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
