/* SPDX-License-Identifier: BSD-3-Clause */
/* threads_shared: tests objects that many connections share, used by many threads at once (see threads.c):
 * batches, a shared receive queue, completion and event queues. */
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

#include "jobs.h"

#define ALWAYS RPMA_F_COMPLETION_ALWAYS
#define PAIRS 3
/* All threads together post this many batches, because each thread posts one to each pair in each round. */
#define BATCHES (THREADS * ROUNDS * PAIRS)
#define BATCH 3

static struct {
    struct rpma_conn *clients[PAIRS];
    struct rpma_conn *servers[PAIRS];
    struct rpma_cq *cq;
    struct rpma_cq *rcq;
    struct rpma_conn_cfg *server_cfg;
    struct rpma_srq_cfg *srq_cfg;
    struct rpma_srq *srq;
    struct rpma_events *events;
    struct rpma_mr_local *near;
    struct rpma_mr_remote *far;
    atomic_int sent;
    atomic_int received;
    sem_t may_ask; /* for another connection */
    pthread_rwlock_t asking;
} shared;

static int begin(void **state) {
    memset(&shared, 0, sizeof(shared));
    return make_endpoint(state);
}

/* The queues outlive their connections. */
static int end(void **state) {
    int failures = 0;
    for (int i = 0; i < PAIRS; ++i) {
        failures += rpma_conn_delete(&shared.clients[i]) != 0;
        failures += rpma_conn_delete(&shared.servers[i]) != 0;
    }
    failures += rpma_cq_delete(&shared.cq) != 0;
    failures += rpma_srq_delete(&shared.srq) != 0;
    failures += rpma_conn_cfg_delete(&shared.server_cfg) != 0;
    failures += rpma_srq_cfg_delete(&shared.srq_cfg) != 0;
    failures += rpma_events_delete(&shared.events) != 0;
    return end_all(state) + failures;
}

/* ---- batches to connections with one completion queue, and a shared receive queue behind them ---- */

static void post_batches(struct ends *ends, int thread) {
    (void)ends;
    for (int i = 0; i < ROUNDS * PAIRS; ++i) {
        /* Each connection has memory of its own too, because the connections
         * are served by different threads. */
        const size_t mine = (size_t)(thread * PAIRS + i % PAIRS) * 64;
        const struct rpma_op ops[BATCH] = {
            {.type = RPMA_OP_WRITE,
             .flags = ALWAYS,
             .local = shared.near,
             .local_offset = mine,
             .remote = shared.far,
             .remote_offset = mine,
             .len = 32},
            {.type = RPMA_OP_FLUSH,
             .flags = ALWAYS,
             .remote = shared.far,
             .remote_offset = mine,
             .len = 32,
             .flush_type = RPMA_FLUSH_TYPE_VISIBILITY},
            {.type = RPMA_OP_SEND_WITH_IMM, .flags = ALWAYS, .imm = (uint32_t)thread},
        };
        size_t posted = 0;
        EXPECT_OK(rpma_post(shared.clients[i % PAIRS], ops, BATCH, &posted));
        EXPECT(posted == BATCH);
    }
}

static void post_receives(struct ends *ends, int thread) {
    (void)ends;
    (void)thread;
    for (int i = 0; i < ROUNDS * PAIRS; ++i) {
        EXPECT_OK(rpma_srq_recv(shared.srq, NULL, 0, 0, NULL));
    }
}

/* Collects completions until `collected` is `all`. */
static void collect(struct rpma_cq *cq, atomic_int *collected, int all) {
    int fd = -1;
    EXPECT_OK(rpma_cq_get_fd(cq, &fd));
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    while (atomic_load(collected) < all && !expectations_failed()) {
        struct ibv_wc wc[4];
        int got = 0;
        const int result = rpma_cq_get_wc(cq, 4, wc, &got);
        for (int i = 0; i < got; ++i) {
            EXPECT(wc[i].status == IBV_WC_SUCCESS);
        }
        atomic_fetch_add(collected, got);
        if (result == RPMA_E_NO_COMPLETION) {
            /* The wait is limited, because another thread may have taken the last completion. */
            poll(&readable, 1, 10);
            const int waited = rpma_cq_wait_event(cq, RPMA_WAIT_NO_REARM);
            EXPECT(waited == 0 || waited == RPMA_E_NO_COMPLETION);
            EXPECT_OK(rpma_cq_rearm(cq, false));
        } else {
            EXPECT_OK(result);
        }
    }
}

static void collect_sent(struct ends *ends, int thread) {
    (void)ends;
    (void)thread;
    collect(shared.cq, &shared.sent, BATCHES * BATCH);
}

static void collect_received(struct ends *ends, int thread) {
    (void)ends;
    (void)thread;
    collect(shared.rcq, &shared.received, BATCHES);
}

static void make_queue_non_blocking(const struct rpma_cq *cq) {
    int fd = -1;
    assert_ok(rpma_cq_get_fd(cq, &fd));
    make_non_blocking(fd);
}

static void batches_and_shared_queues(void **state) {
    struct ends *ends = *state;
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    shared.near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC);
    shared.far = remote_of(ends, reg(ends, ends->far, BUFFER_SIZE, usage));
    assert_ok(rpma_srq_cfg_new(&shared.srq_cfg));
    assert_ok(rpma_srq_cfg_set_rq_size(shared.srq_cfg, BATCHES));
    assert_ok(rpma_srq_cfg_set_rcq_size(shared.srq_cfg, BATCHES));
    assert_ok(rpma_srq_new(ends->peer, shared.srq_cfg, &shared.srq));
    assert_ok(rpma_srq_get_rcq(shared.srq, &shared.rcq));
    assert_ok(rpma_cq_new(ends->peer, BATCHES * BATCH, 0, &shared.cq));
    make_queue_non_blocking(shared.cq);
    make_queue_non_blocking(shared.rcq);
    assert_ok(rpma_conn_cfg_set_sq_size(ends->cfg, BATCHES / PAIRS * BATCH));
    assert_ok(rpma_conn_cfg_set_cq(ends->cfg, shared.cq));
    assert_ok(rpma_conn_cfg_new(&shared.server_cfg));
    assert_ok(rpma_conn_cfg_set_srq(shared.server_cfg, shared.srq));
    for (int i = 0; i < PAIRS; ++i) {
        ask(ends, ends->cfg, NULL);
        answer(ends, shared.server_cfg, NULL);
        await_established(ends);
        shared.clients[i] = ends->client;
        shared.servers[i] = ends->server;
        ends->client = ends->server = NULL;
    }
    RUN_ALL(ends, post_batches, post_receives, collect_sent, collect_received);
    assert_int_equal(atomic_load(&shared.sent), BATCHES * BATCH);
    assert_int_equal(atomic_load(&shared.received), BATCHES);
}

/* ---- connections that many threads make, with one queue for their events ---- */

/* A thread asks again when one of all the connections is established. The device gives a connection 10
 * seconds, which is little for all of them at once when a race detector and others share the processors. */
static void ask_many(struct ends *ends, int thread) {
    (void)thread;
    for (int i = 0; i < ROUNDS; ++i) {
        struct rpma_conn_req *request = NULL;
        struct rpma_conn *client = NULL;
        EXPECT(sem_wait(&shared.may_ask) == 0);
        EXPECT_OK(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, ends->cfg, &request));
        EXPECT(pthread_rwlock_rdlock(&shared.asking) == 0);
        EXPECT_OK(rpma_conn_req_connect(&request, NULL, &client));
        EXPECT(pthread_rwlock_unlock(&shared.asking) == 0);
    }
}

static void answer_many(struct ends *ends, int thread) {
    (void)thread;
    for (int i = 0; i < ROUNDS; ++i) {
        struct rpma_conn_req *request = NULL;
        struct rpma_conn *server = NULL;
        EXPECT_OK(rpma_ep_next_conn_req(ends->ep, NULL, &request));
        EXPECT_OK(rpma_conn_req_connect(&request, NULL, &server));
        if (server != NULL) {
            expect_event(server, RPMA_CONN_ESTABLISHED);
            EXPECT_OK(rpma_conn_disconnect(server));
            expect_event(server, RPMA_CONN_CLOSED);
            EXPECT_OK(rpma_conn_delete(&server));
        }
    }
}

/* Deletes a connection when the call that asked for it has returned,
 * which is when no thread is in such a call. */
static void delete_asked(struct rpma_conn *conn) {
    EXPECT(pthread_rwlock_wrlock(&shared.asking) == 0);
    EXPECT(pthread_rwlock_unlock(&shared.asking) == 0);
    EXPECT_OK(rpma_conn_delete(&conn));
}

/* Only this thread may wait for events. Each connection comes, and goes. The thread deletes each at once,
 * because drd compares what a thread does with all that it remembers of each lock that is still there. */
static void *take_events(void *argument) {
    (void)argument;
    int came = 0;
    int went = 0;
    while (went < THREADS * ROUNDS && !expectations_failed()) {
        struct rpma_conn *conn = NULL;
        enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
        void *context = NULL;
        EXPECT_OK(rpma_events_next(shared.events, &conn, &event));
        EXPECT(event == RPMA_CONN_ESTABLISHED || event == RPMA_CONN_CLOSED);
        EXPECT_OK(rpma_conn_get_context(conn, &context));
        EXPECT(context == (event == RPMA_CONN_CLOSED ? conn : NULL));
        EXPECT_OK(rpma_conn_set_context(conn, conn));
        if (event == RPMA_CONN_ESTABLISHED) {
            ++came;
            EXPECT(sem_post(&shared.may_ask) == 0);
        }
        if (event == RPMA_CONN_CLOSED) {
            ++went;
            delete_asked(conn);
        }
    }
    EXPECT(came == THREADS * ROUNDS);
    return NULL;
}

static void events_of_many_threads(void **state) {
    struct ends *ends = *state;
    pthread_t waiter;
    assert_int_equal(sem_init(&shared.may_ask, 0, THREADS), 0);
    assert_int_equal(pthread_rwlock_init(&shared.asking, NULL), 0);
    assert_ok(rpma_events_new(ends->peer, &shared.events));
    assert_ok(rpma_conn_cfg_set_events(ends->cfg, shared.events));
    assert_int_equal(pthread_create(&waiter, NULL, take_events, NULL), 0);
    RUN_ALL(ends, ask_many, answer_many);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_int_equal(sem_destroy(&shared.may_ask), 0);
    assert_int_equal(pthread_rwlock_destroy(&shared.asking), 0);
    assert_false(expectations_failed());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_and_shared_queues, begin, end),
        cmocka_unit_test_setup_teardown(events_of_many_threads, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
