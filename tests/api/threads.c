/* SPDX-License-Identifier: BSD-3-Clause */
/* threads: checks the promises of doc/THREADS.md with many threads at once. ThreadSanitizer judges them.
 * Without it, each thread still checks its own results. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "ends.h"
#include "jobs.h"

/* ---- values of one object ---- */

static struct rpma_peer_cfg *shared_peer_cfg;
static struct rpma_srq_cfg *shared_srq_cfg;

static void set_and_get(struct ends *ends, int thread) {
    struct rpma_conn_cfg *const cfg = ends->cfg;
    const uint32_t mine = (uint32_t)thread;
    uint32_t size = UINT32_MAX;
    int timeout_ms = -1;
    bool shared = false;
    char descriptor = 7;
    for (int i = 0; i < ROUNDS; ++i) {
        EXPECT_OK(rpma_conn_cfg_set_cq_size(cfg, mine));
        EXPECT_OK(rpma_conn_cfg_get_cq_size(cfg, &size));
        EXPECT(size < THREADS);
        EXPECT_OK(rpma_conn_cfg_set_rcq_size(cfg, mine));
        EXPECT_OK(rpma_conn_cfg_get_rcq_size(cfg, &size));
        EXPECT_OK(rpma_conn_cfg_set_sq_size(cfg, mine));
        EXPECT_OK(rpma_conn_cfg_get_sq_size(cfg, &size));
        EXPECT_OK(rpma_conn_cfg_set_rq_size(cfg, mine));
        EXPECT_OK(rpma_conn_cfg_get_rq_size(cfg, &size));
        EXPECT_OK(rpma_conn_cfg_set_timeout(cfg, thread));
        EXPECT_OK(rpma_conn_cfg_get_timeout(cfg, &timeout_ms));
        EXPECT(timeout_ms >= 0 && timeout_ms < THREADS);
        EXPECT_OK(rpma_conn_cfg_set_compl_channel(cfg, thread % 2 == 0));
        EXPECT_OK(rpma_conn_cfg_get_compl_channel(cfg, &shared));
        EXPECT_OK(rpma_srq_cfg_set_rq_size(shared_srq_cfg, mine));
        EXPECT_OK(rpma_srq_cfg_get_rq_size(shared_srq_cfg, &size));
        EXPECT_OK(rpma_srq_cfg_set_rcq_size(shared_srq_cfg, mine));
        EXPECT_OK(rpma_srq_cfg_get_rcq_size(shared_srq_cfg, &size));
        EXPECT_OK(rpma_peer_cfg_set_direct_write_to_pmem(shared_peer_cfg, thread % 2 == 0));
        EXPECT_OK(rpma_peer_cfg_get_direct_write_to_pmem(shared_peer_cfg, &shared));
        EXPECT_OK(rpma_peer_cfg_get_descriptor(shared_peer_cfg, &descriptor));
        EXPECT(descriptor == 0 || descriptor == 1);
    }
}

static void values_are_set_and_got(void **state) {
    struct ends *ends = *state;
    assert_ok(rpma_peer_cfg_new(&shared_peer_cfg));
    assert_ok(rpma_srq_cfg_new(&shared_srq_cfg));
    RUN_ALL(ends, set_and_get);
    assert_ok(rpma_peer_cfg_delete(&shared_peer_cfg));
    assert_ok(rpma_srq_cfg_delete(&shared_srq_cfg));
}

/* ---- one device, one peer ---- */

static void find_devices(struct ends *ends, int thread) {
    (void)ends;
    const char *const addresses[] = {"127.0.0.1", "::1", "192.0.2.1"};
    for (int i = 0; i < ROUNDS; ++i) {
        struct ibv_context *context = NULL;
        struct rpma_peer *peer = NULL;
        int capable = 7;
        const int result =
            rpma_utils_get_ibv_context(addresses[(i + thread) % 3], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context);
        EXPECT(result == ((i + thread) % 3 == 2 ? RPMA_E_PROVIDER : 0));
        if (result == 0) {
            EXPECT_OK(rpma_utils_ibv_context_is_odp_capable(context, &capable));
            EXPECT_OK(rpma_peer_new(context, &peer));
            EXPECT_OK(rpma_peer_delete(&peer));
        }
    }
}

static void register_memory(struct ends *ends, int thread) {
    (void)thread;
    char memory[64];
    for (int i = 0; i < ROUNDS; ++i) {
        struct rpma_mr_local *mr = NULL;
        struct rpma_mr_remote *remote = NULL;
        unsigned char descriptor[21];
        void *start = NULL;
        size_t size = 0;
        int type = 0;
        EXPECT_OK(rpma_mr_reg(ends->peer, memory, sizeof(memory), RPMA_MR_USAGE_READ_SRC, &mr));
        EXPECT_OK(rpma_mr_get_descriptor(mr, descriptor));
        EXPECT_OK(rpma_mr_get_ptr(mr, &start));
        EXPECT(start == memory);
        EXPECT_OK(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &remote));
        EXPECT_OK(rpma_mr_remote_get_size(remote, &size));
        EXPECT_OK(rpma_mr_remote_get_flush_type(remote, &type));
        EXPECT(size == sizeof(memory) && type == 0);
        (void)rpma_mr_advise(mr, 0, 8, IBV_ADVISE_MR_ADVICE_PREFETCH, 0);
        EXPECT_OK(rpma_mr_remote_delete(&remote));
        EXPECT_OK(rpma_mr_dereg(&mr));
    }
}

static void change_the_log(struct ends *ends, int thread) {
    (void)ends;
    (void)thread;
    for (int i = 0; i < ROUNDS; ++i) {
        enum rpma_log_level level = RPMA_LOG_DISABLED;
        EXPECT_OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD,
                                         i % 2 == 0 ? RPMA_LOG_LEVEL_DEBUG : RPMA_LOG_LEVEL_ERROR));
        EXPECT_OK(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &level));
        EXPECT(level == RPMA_LOG_LEVEL_DEBUG || level == RPMA_LOG_LEVEL_ERROR);
        EXPECT(strcmp(rpma_err_2str(RPMA_E_AGAIN), "Temporary error, try again") == 0);
        EXPECT(rpma_utils_conn_event_2str(RPMA_CONN_LOST) != NULL);
    }
}

static void log_lines(struct ends *ends, int thread) {
    (void)ends;
    (void)thread;
    for (int i = 0; i < ROUNDS; ++i) {
        EXPECT(rpma_peer_cfg_new(NULL) == RPMA_E_INVAL);
    }
}

/* librpma's own function, which tells the local time, writes to the place that
 * RPMA_LOG says. CMakeLists.txt sets RPMA_LOG. */
static void many_threads_log(void **state) {
    enum rpma_log_level before = RPMA_LOG_DISABLED;
    assert_ok(rpma_log_get_threshold(RPMA_LOG_THRESHOLD, &before));
    assert_ok(rpma_log_set_function(RPMA_LOG_USE_DEFAULT_FUNCTION));
    assert_ok(rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_ERROR));
    RUN_ALL(*state, log_lines);
    capture_log(before);
}

static void one_peer_serves_many_threads(void **state) {
    RUN_ALL(*state, find_devices, register_memory, change_the_log);
}

/* ---- a connection for each thread ---- */

static void port_of(const struct rpma_ep *ep, char port[6]) {
    struct sockaddr_storage address;
    EXPECT_OK(rpma_ep_get_local_addr(ep, &address));
    snprintf(port, 6, "%u", (unsigned)ntohs(((struct sockaddr_in *)&address)->sin_port));
}

static void connect_and_disconnect(struct ends *ends, int thread) {
    (void)thread;
    for (int i = 0; i < ROUNDS / 5; ++i) {
        struct rpma_ep *ep = NULL;
        struct rpma_conn_req *request = NULL;
        struct rpma_conn *client = NULL;
        struct rpma_conn *server = NULL;
        char port[6] = "";
        EXPECT_OK(rpma_ep_listen(ends->peer, ADDRESS, "0", &ep));
        if (ep == NULL) {
            return;
        }
        port_of(ep, port);
        EXPECT_OK(rpma_conn_req_new(ends->peer, ADDRESS, port, NULL, &request));
        EXPECT_OK(rpma_conn_req_connect(&request, NULL, &client));
        EXPECT_OK(rpma_ep_next_conn_req(ep, NULL, &request));
        EXPECT_OK(rpma_conn_req_connect(&request, NULL, &server));
        if (client == NULL || server == NULL) {
            return;
        }
        expect_event(client, RPMA_CONN_ESTABLISHED);
        expect_event(server, RPMA_CONN_ESTABLISHED);
        EXPECT_OK(rpma_conn_disconnect(client));
        expect_event(client, RPMA_CONN_CLOSED);
        expect_event(server, RPMA_CONN_CLOSED);
        EXPECT_OK(rpma_conn_delete(&client));
        EXPECT_OK(rpma_conn_delete(&server));
        EXPECT_OK(rpma_ep_shutdown(&ep));
    }
}

static void connections_do_not_meet(void **state) {
    RUN_ALL(*state, connect_and_disconnect);
}

/* ---- one endpoint, many threads on either side ---- */

static void ask_once(struct ends *ends, int thread) {
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *client = NULL;
    struct rpma_conn_private_data data = {NULL, 0};
    (void)thread;
    EXPECT_OK(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, NULL, &request));
    EXPECT_OK(rpma_conn_req_connect(&request, NULL, &client));
    if (client != NULL) {
        expect_event(client, RPMA_CONN_ESTABLISHED);
        EXPECT_OK(rpma_conn_get_private_data(client, &data));
        EXPECT(data.len == 5 && memcmp(data.ptr, "hello", 5) == 0);
        expect_event(client, RPMA_CONN_CLOSED);
        EXPECT_OK(rpma_conn_delete(&client));
    }
}

static void answer_once(struct ends *ends, int thread) {
    const struct rpma_conn_private_data hello = {"hello", 5};
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *server = NULL;
    (void)thread;
    EXPECT_OK(rpma_ep_next_conn_req(ends->ep, NULL, &request));
    EXPECT_OK(rpma_conn_req_connect(&request, &hello, &server));
    if (server != NULL) {
        expect_event(server, RPMA_CONN_ESTABLISHED);
        EXPECT_OK(rpma_conn_disconnect(server));
        expect_event(server, RPMA_CONN_CLOSED);
        EXPECT_OK(rpma_conn_delete(&server));
    }
}

static void one_endpoint_feeds_many_threads(void **state) {
    RUN_ALL(*state, ask_once, answer_once);
}

/* ---- one connection, many threads ---- */

/* In each round each posting thread posts one write, one read, one
 * flush, one atomic write and one message. */
#define KINDS 5
#define POSTED (THREADS * ROUNDS * KINDS)

static struct rpma_mr_local *near;
static struct rpma_mr_remote *far;
static atomic_int collected;

static void post(struct ends *ends, int thread) {
    struct rpma_conn *const conn = ends->client;
    const size_t mine = (size_t)thread * 64;
    char value[8] = "value";
    for (int i = 0; i < ROUNDS; ++i) {
        EXPECT_OK(rpma_write(conn, far, mine, near, mine, 32, RPMA_F_COMPLETION_ALWAYS, NULL));
        EXPECT_OK(rpma_read(conn, near, mine + 32, far, mine, 16, RPMA_F_COMPLETION_ALWAYS, NULL));
        EXPECT_OK(
            rpma_flush(conn, far, mine, 32, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, NULL));
        EXPECT_OK(rpma_atomic_write(conn, far, mine + 32, value, RPMA_F_COMPLETION_ALWAYS, NULL));
        EXPECT_OK(rpma_send(conn, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, NULL));
    }
}

static void collect(struct ends *ends, int thread) {
    struct rpma_cq *cq = NULL;
    int fd = -1;
    (void)thread;
    EXPECT_OK(rpma_conn_get_cq(ends->client, &cq));
    EXPECT_OK(rpma_cq_get_fd(cq, &fd));
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    while (atomic_load(&collected) < POSTED && !expectations_failed()) {
        struct ibv_wc wc[4];
        int got = 0;
        const int result = rpma_cq_get_wc(cq, 4, wc, &got);
        for (int i = 0; i < got; ++i) {
            EXPECT(wc[i].status == IBV_WC_SUCCESS);
        }
        atomic_fetch_add(&collected, got);
        if (result == RPMA_E_NO_COMPLETION) {
            /* The wait is limited, because another thread may have taken the last completion. */
            poll(&readable, 1, 10);
            const int waited = rpma_cq_wait(cq);
            EXPECT(waited == 0 || waited == RPMA_E_NO_COMPLETION);
        } else {
            EXPECT_OK(result);
        }
    }
}

static void ask_the_connection(struct ends *ends, int thread) {
    struct rpma_peer_cfg *pcfg = NULL;
    EXPECT_OK(rpma_peer_cfg_new(&pcfg));
    EXPECT_OK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, thread % 2 == 0));
    for (int i = 0; i < ROUNDS; ++i) {
        struct rpma_conn_private_data data = {NULL, 7};
        struct rpma_cq *rcq = anything();
        uint32_t number = 0;
        int fd = -1;
        EXPECT_OK(rpma_conn_apply_remote_peer_cfg(ends->client, pcfg));
        EXPECT_OK(rpma_conn_get_qp_num(ends->client, &number));
        EXPECT_OK(rpma_conn_get_event_fd(ends->client, &fd));
        EXPECT_OK(rpma_conn_get_rcq(ends->client, &rcq));
        EXPECT_OK(rpma_conn_get_private_data(ends->client, &data));
        EXPECT(rcq == NULL && data.len == 0);
        EXPECT(rpma_conn_get_compl_fd(ends->client, &fd) == RPMA_E_NOT_SHARED_CHNL);
    }
    EXPECT_OK(rpma_peer_cfg_delete(&pcfg));
}

static void receive(struct ends *ends, int thread) {
    (void)thread;
    for (int i = 0; i < ROUNDS; ++i) {
        EXPECT_OK(rpma_recv(ends->server, NULL, 0, 0, NULL));
    }
}

static void *await_end(void *argument) {
    struct ends *ends = argument;
    expect_event(ends->client, RPMA_CONN_CLOSED);
    return NULL;
}

static void one_connection_serves_many_threads(void **state) {
    struct ends *ends = *state;
    pthread_t waiter;
    int fd = -1;
    struct rpma_cq *cq = NULL;
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST);
    far = remote_of(ends, reg(ends, ends->far, BUFFER_SIZE, usage));
    atomic_store(&collected, 0);
    assert_ok(rpma_conn_cfg_set_sq_size(ends->cfg, POSTED));
    assert_ok(rpma_conn_cfg_set_rq_size(ends->cfg, POSTED));
    assert_ok(rpma_conn_cfg_set_cq_size(ends->cfg, 2 * POSTED));
    ask(ends, ends->cfg, NULL);
    answer(ends, ends->cfg, NULL);
    await_established(ends);
    assert_ok(rpma_conn_get_cq(ends->client, &cq));
    assert_ok(rpma_cq_get_fd(cq, &fd));
    make_non_blocking(fd);
    /* A thread may wait for an event during all this. */
    assert_int_equal(pthread_create(&waiter, NULL, await_end, ends), 0);
    RUN_ALL(ends, receive);
    RUN_ALL(ends, post, collect, ask_the_connection);
    assert_int_equal(atomic_load(&collected), POSTED);
    assert_ok(rpma_conn_disconnect(ends->server));
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_false(expectations_failed());
}

/* ---- regions that are younger than their connection ---- */

/* The device's thread finds a region by its key, which comes over the network. Nothing else was between the
 * two threads since the region was registered. */
static void regions_come_and_go_beside_a_connection(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *cq = NULL;
    near = reg(ends, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_WRITE_SRC);
    ask(ends, NULL, NULL);
    answer(ends, NULL, NULL);
    await_established(ends);
    assert_ok(rpma_conn_get_cq(ends->client, &cq));
    for (int i = 0; i < ROUNDS; ++i) {
        const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
        struct rpma_mr_local *mr = NULL;
        struct rpma_mr_remote *remote = NULL;
        unsigned char descriptor[21];
        struct ibv_wc wc;
        assert_ok(rpma_mr_reg(ends->peer, ends->far, BUFFER_SIZE, usage, &mr));
        assert_ok(rpma_mr_get_descriptor(mr, descriptor));
        assert_ok(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &remote));
        assert_ok(rpma_write(ends->client, remote, 0, near, 0, 64, RPMA_F_COMPLETION_ON_ERROR, NULL));
        assert_ok(rpma_flush(ends->client, remote, 0, 64, RPMA_FLUSH_TYPE_VISIBILITY,
                             RPMA_F_COMPLETION_ALWAYS, NULL));
        assert_ok(rpma_cq_wait(cq));
        assert_ok(rpma_cq_get_wc(cq, 1, &wc, NULL));
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_ok(rpma_mr_remote_delete(&remote));
        assert_ok(rpma_mr_dereg(&mr));
    }
}

#define WITH_PEER(test) cmocka_unit_test_setup_teardown(test, make_peer, end_all)
#define WITH_ENDPOINT(test) cmocka_unit_test_setup_teardown(test, make_endpoint, end_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_PEER(values_are_set_and_got),
        WITH_PEER(one_peer_serves_many_threads),
        WITH_PEER(many_threads_log),
        WITH_PEER(connections_do_not_meet),
        WITH_ENDPOINT(one_endpoint_feeds_many_threads),
        WITH_ENDPOINT(one_connection_serves_many_threads),
        WITH_ENDPOINT(regions_come_and_go_beside_a_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
