/* SPDX-License-Identifier: BSD-3-Clause */
/* wait: tests sleeps on a descriptor that needs no arming, together with others, and their cost. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ends.h"
#include "syscalls.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS
#define ROUNDS 500

/* ---- what is told by eventfds: all but the one that wakes the soft device's thread, which does not block
 * ---- */

static atomic_int told;

/* The library writes eventfds with syscall(2), which is no cancellation point. */
static int before_syscall(long number, const long given[6]) {
    if (number == SYS_write && (fcntl((int)given[0], F_GETFL) & O_NONBLOCK) == 0) {
        atomic_fetch_add(&told, 1);
    }
    return 0;
}

/* ---- a connection whose ends each have a queue for completions ---- */

static struct {
    struct rpma_cq *near;
    struct rpma_cq *far;
    struct rpma_mr_local *mr;
    struct rpma_events *events;
    struct rpma_conn_cfg *far_cfg;
} shared;

static int connect_with(void **state, int flags) {
    memset(&shared, 0, sizeof(shared));
    make_endpoint(state);
    struct ends *ends = *state;
    assert_ok(rpma_cq_new(ends->peer, 20, flags, &shared.near));
    assert_ok(rpma_cq_new(ends->peer, 20, flags, &shared.far));
    assert_ok(rpma_conn_cfg_new(&shared.far_cfg));
    assert_ok(rpma_conn_cfg_set_cq(ends->cfg, shared.near));
    assert_ok(rpma_conn_cfg_set_cq(shared.far_cfg, shared.far));
    ask(ends, ends->cfg, NULL);
    answer(ends, shared.far_cfg, NULL);
    await_established(ends);
    shared.mr = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND);
    return 0;
}

static int connect_unarmed(void **state) {
    return connect_with(state, RPMA_CQ_UNARMED);
}

static int connect_armed(void **state) {
    return connect_with(state, 0);
}

static int end(void **state) {
    struct ends *ends = *state;
    int failures = rpma_conn_delete(&ends->client) != 0;
    failures += rpma_conn_delete(&ends->server) != 0;
    failures += rpma_cq_delete(&shared.near) != 0;
    failures += rpma_cq_delete(&shared.far) != 0;
    failures += rpma_conn_cfg_delete(&shared.far_cfg) != 0;
    failures += rpma_events_delete(&shared.events) != 0;
    return end_all(state) + failures;
}

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_cq *cq = anything();
    int fd = -7;
    assert_code(rpma_cq_new(anything(), 1, RPMA_CQ_UNARMED | RPMA_CQ_POLLED, &cq), RPMA_E_INVAL);
    assert_code(rpma_cq_wait_begin(NULL, &fd), RPMA_E_INVAL);
    assert_code(rpma_cq_wait_begin(cq, NULL), RPMA_E_INVAL);
    assert_code(rpma_cq_wait_end(NULL), RPMA_E_INVAL);
    assert_code(rpma_events_wait_begin(NULL, &fd), RPMA_E_INVAL);
    assert_code(rpma_events_wait_begin(anything(), NULL), RPMA_E_INVAL);
    assert_code(rpma_events_wait_end(NULL), RPMA_E_INVAL);
    assert_int_equal(fd, -7);
}

static void waits_are_of_unarmed_queues(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *armed = NULL;
    int fd = -7;
    assert_code(rpma_cq_get_fd(shared.near, &fd), RPMA_E_NOSUPP);
    assert_code(rpma_cq_wait(shared.near), RPMA_E_NOSUPP);
    assert_code(rpma_cq_rearm(shared.near, false), RPMA_E_NOSUPP);
    assert_ok(rpma_cq_new(ends->peer, 20, 0, &armed));
    assert_code(rpma_cq_wait_begin(armed, &fd), RPMA_E_NOSUPP);
    assert_code(rpma_cq_wait_end(armed), RPMA_E_NOSUPP);
    assert_ok(rpma_cq_delete(&armed));
    assert_int_equal(fd, -7);
    if (ends->device == SOFT_DEVICE) {
        capture_log(RPMA_LOG_LEVEL_ERROR);
        assert_code(rpma_cq_wait_end(shared.near), RPMA_E_INVAL);
        assert_true(logged("nobody waits", NULL));
    }
}

/* Completions that wait stay in the queue. */
static void a_queue_is_resized(void **state) {
    struct ends *ends = *state;
    struct ibv_wc wc;
    if (ends->device != SOFT_DEVICE) {
        skip(); /* not every device can do this */
    }
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_cq_resize(NULL, 20), RPMA_E_INVAL);
    assert_code(rpma_cq_resize(shared.near, UINT32_MAX), RPMA_E_PROVIDER);
    assert_int_equal(errno, EINVAL);
    assert_true(logged("ibv_resize_cq", "2147483647", NULL));
    for (uintptr_t i = 1; i <= 3; ++i) {
        assert_ok(rpma_write(ends->client, NULL, 0, NULL, 0, 0, ALWAYS, (void *)i));
    }
    assert_code(rpma_cq_resize(shared.near, 2), RPMA_E_PROVIDER);
    assert_ok(rpma_cq_resize(shared.near, 1000));
    for (uintptr_t i = 1; i <= 3;) {
        const int result = rpma_cq_get_wc(shared.near, 1, &wc, NULL);
        assert_true(result == 0 || result == RPMA_E_NO_COMPLETION);
        if (result == 0) {
            assert_int_equal(wc.wr_id, i++);
        }
    }
}

static bool is_readable(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, 0) == 1;
}

/* Returns the next completion, and sleeps in between. */
static struct ibv_wc sleep_for(struct rpma_cq *cq) {
    struct ibv_wc wc;
    int fd = -1;
    if (rpma_cq_wait_begin(cq, &fd) != 0) {
        abort();
    }
    int result = rpma_cq_get_wc(cq, 1, &wc, NULL);
    while (result == RPMA_E_NO_COMPLETION) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        if (poll(&entry, 1, 20000) != 1) {
            abort();
        }
        result = rpma_cq_get_wc(cq, 1, &wc, NULL);
    }
    if (result != 0 || rpma_cq_wait_end(cq) != 0) {
        abort();
    }
    return wc;
}

static void what_arrives_makes_it_readable(void **state) {
    struct ends *ends = *state;
    struct ibv_wc wc;
    int fd = -1;
    int again = -1;
    assert_ok(rpma_recv(ends->server, shared.mr, 0, 8, (void *)7));
    assert_ok(rpma_cq_wait_begin(shared.far, &fd));
    assert_code(rpma_cq_get_wc(shared.far, 1, &wc, NULL), RPMA_E_NO_COMPLETION);
    while (is_readable(fd)) { /* something of the connection's start may be left */
        assert_code(rpma_cq_get_wc(shared.far, 1, &wc, NULL), RPMA_E_NO_COMPLETION);
    }
    assert_ok(rpma_send(ends->client, shared.mr, 8, 8, RPMA_F_COMPLETION_ON_ERROR, NULL));
    await_readable(fd);
    int result = RPMA_E_NO_COMPLETION;
    while (result == RPMA_E_NO_COMPLETION) {
        result = rpma_cq_get_wc(shared.far, 1, &wc, NULL);
    }
    assert_ok(result);
    assert_int_equal(wc.wr_id, 7);
    assert_false(is_readable(fd));
    assert_ok(rpma_cq_wait_end(shared.far));
    assert_ok(rpma_cq_wait_begin(shared.far, &again));
    assert_int_equal(again, fd);
    assert_ok(rpma_cq_wait_end(shared.far));
}

/* Other threads complete several at once here, of which one is collected. */
static void what_others_post_makes_it_readable(void **state) {
    struct ends *ends = *state;
    struct ibv_wc wc;
    int fd = -1;
    assert_ok(rpma_cq_wait_begin(shared.near, &fd));
    for (int i = 0; i < 2; ++i) {
        assert_ok(rpma_write(ends->client, NULL, 0, NULL, 0, 0, ALWAYS, NULL));
    }
    for (int i = 0; i < 2; ++i) {
        await_readable(fd);
        int result = RPMA_E_NO_COMPLETION;
        while (result == RPMA_E_NO_COMPLETION) {
            result = rpma_cq_get_wc(shared.near, 1, &wc, NULL);
        }
        assert_ok(result);
    }
    assert_ok(rpma_cq_wait_end(shared.near));
    /* The queue need not tell of a completion before a wait, but does not lose it. */
    assert_ok(rpma_write(ends->client, NULL, 0, NULL, 0, 0, ALWAYS, (void *)9));
    assert_int_equal(sleep_for(shared.near).wr_id, 9);
}

static struct ibv_wc armed_wait(struct rpma_cq *cq) {
    struct ibv_wc wc;
    int result = rpma_cq_get_wc(cq, 1, &wc, NULL);
    while (result == RPMA_E_NO_COMPLETION) {
        if (rpma_cq_wait(cq) != 0) {
            abort();
        }
        result = rpma_cq_get_wc(cq, 1, &wc, NULL);
    }
    return wc;
}

struct side {
    struct rpma_conn *conn;
    struct rpma_cq *cq;
    struct ibv_wc (*next)(struct rpma_cq *);
};

static void say(const struct side *side) {
    if (rpma_send(side->conn, shared.mr, 0, 8, ALWAYS, NULL) != 0) {
        abort();
    }
}

/* Receives the message that was said, and collects other completions on the way. */
static void hear(const struct side *side) {
    struct ibv_wc wc = {0};
    if (rpma_recv(side->conn, shared.mr, 64, 8, NULL) != 0) {
        abort();
    }
    do {
        wc = side->next(side->cq);
    } while (wc.opcode != IBV_WC_RECV && wc.status == IBV_WC_SUCCESS);
    if (wc.status != IBV_WC_SUCCESS) {
        abort();
    }
}

static void *answer_each(void *argument) {
    for (int i = 0; i < ROUNDS; ++i) {
        hear(argument);
        say(argument);
    }
    return NULL;
}

/* Runs a ping-pong of two threads that sleep. Returns how often something was told. */
static int tolds_of_a_ping_pong(struct ends *ends, struct ibv_wc (*next)(struct rpma_cq *)) {
    pthread_t other;
    struct side near = {ends->client, shared.near, next};
    struct side far = {ends->server, shared.far, next};
    atomic_store(&told, 0);
    assert_int_equal(pthread_create(&other, NULL, answer_each, &far), 0);
    for (int i = 0; i < ROUNDS; ++i) {
        say(&near);
        hear(&near);
    }
    assert_int_equal(pthread_join(other, NULL), 0);
    return atomic_load(&told);
}

/* Another thread of the device may take what came, between this thread's look and
 * its sleep. The device has to tell then. */
#define SELDOM (ROUNDS / 10)

static void no_completion_is_told(void **state) {
    struct ends *ends = *state;
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    assert_in_range(tolds_of_a_ping_pong(ends, sleep_for), 0, SELDOM);
}

/* The completions of an armed queue are told, so tolds_of_a_ping_pong counts them. */
static void completions_of_armed_queues_are_told(void **state) {
    struct ends *ends = *state;
    if (ends->device != SOFT_DEVICE) {
        skip();
    }
    assert_true(tolds_of_a_ping_pong(ends, armed_wait) > SELDOM);
}

static struct rpma_event event_of(int fd) {
    struct rpma_event event = {0};
    int result = RPMA_E_NO_EVENT;
    while (result == RPMA_E_NO_EVENT) {
        await_readable(fd);
        result = rpma_events_take(shared.events, &event);
    }
    assert_ok(result);
    return event;
}

static void events_make_it_readable(void **state) {
    struct ends *ends = *state;
    struct rpma_event event;
    int own = -1;
    int fd = -1;
    int again = -1;
    assert_ok(rpma_events_new(ends->peer, &shared.events));
    assert_ok(rpma_events_get_fd(shared.events, &own));
    make_non_blocking(own);
    assert_ok(rpma_conn_delete(&ends->client));
    await_event(ends->server, RPMA_CONN_CLOSED);
    assert_ok(rpma_conn_delete(&ends->server));
    assert_ok(rpma_conn_cfg_set_events(ends->cfg, shared.events));
    assert_ok(rpma_events_wait_begin(shared.events, &fd));
    assert_code(rpma_events_take(shared.events, &event), RPMA_E_NO_EVENT);
    assert_false(is_readable(fd));
    assert_ok(rpma_conn_req_begin(ends->peer, ADDRESS, ends->port, ends->cfg, &ends->request));
    assert_int_equal(event_of(fd).type, RPMA_EVENT_CONN_REQ);
    assert_ok(rpma_events_wait_end(shared.events));
    /* No thread waits, but the connection is made. */
    assert_ok(rpma_conn_req_connect(&ends->request, NULL, &ends->client));
    answer(ends, shared.far_cfg, NULL);
    await_event(ends->server, RPMA_CONN_ESTABLISHED);
    assert_ok(rpma_events_wait_begin(shared.events, &again));
    assert_int_equal(again, fd);
    int result = rpma_events_take(shared.events, &event);
    event = result == RPMA_E_NO_EVENT ? event_of(fd) : event;
    assert_int_equal(event.conn_event, RPMA_CONN_ESTABLISHED);
    assert_ok(rpma_conn_disconnect(ends->server));
    assert_int_equal(event_of(fd).conn_event, RPMA_CONN_CLOSED);
    assert_false(is_readable(fd));
    assert_ok(rpma_events_wait_end(shared.events));
}

#define UNARMED(test) cmocka_unit_test_setup_teardown(test, connect_unarmed, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        UNARMED(waits_are_of_unarmed_queues),
        UNARMED(a_queue_is_resized),
        UNARMED(what_arrives_makes_it_readable),
        UNARMED(what_others_post_makes_it_readable),
        UNARMED(no_completion_is_told),
        cmocka_unit_test_setup_teardown(completions_of_armed_queues_are_told, connect_armed, end),
        UNARMED(events_make_it_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
