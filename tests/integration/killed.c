/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests that a peer may be killed at any instruction. Two processes send, write and flush to each other. One
 * of them is stopped at a random moment, goes on for a random number of instructions, and is killed. The
 * other one has to get the end of the connection soon, and may have seen nothing but whole messages. It then
 * has as many descriptors as before, and nothing is left in /dev/shm.
 *
 *     killed [KILLS [SEED]]
 *     killed connects PORT | listens      the process that is killed, which the test starts */
#define _GNU_SOURCE
#include <fcntl.h>
#include <librpma.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../compat/program.h"

/* cmocka.h, last, because it has macros with everyday names. */
#include "../api/test.h"
#include "../entries.h"

enum { RECEIVES = 8, MOST_MESSAGE = 4096, LARGE = 100 << 10, REGION = LARGE + RECEIVES * MOST_MESSAGE };

static int kills = 50;
static uint64_t seed = 1;

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

/* One end of the connection, and what it has for its traffic. */
struct end {
    struct rpma_peer *peer;
    struct rpma_conn *conn;
    struct rpma_cq *cq;
    struct rpma_mr_local *region;
    struct rpma_mr_remote *there;
    unsigned char *memory; /* its first LARGE bytes are the peer's to write, the rest has the receives */
    unsigned char *source;
    struct rpma_mr_local *from;
    struct rpma_conn_cfg *cfg;
    uint64_t sent;
    uint64_t received;
};

static void prepare(struct end *end) {
    end->peer = new_peer("127.0.0.1");
    end->memory = aligned_alloc(4096, REGION);
    end->source = aligned_alloc(4096, LARGE);
    REQUIRE(end->memory != NULL && end->source != NULL);
    memset(end->memory, 0, REGION);
    memset(end->source, 1, LARGE);
    CHECK(rpma_mr_reg(end->peer, end->memory, REGION,
                      RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
                      &end->region));
    CHECK(
        rpma_mr_reg(end->peer, end->source, LARGE, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND, &end->from));
    CHECK(rpma_conn_cfg_new(&end->cfg));
    CHECK(rpma_conn_cfg_set_rq_size(end->cfg, RECEIVES));
    CHECK(rpma_conn_cfg_set_sq_size(end->cfg, 4));
    CHECK(rpma_conn_cfg_set_cq_size(end->cfg, 2 * RECEIVES));
}

static void post_receive(struct end *end, size_t number) {
    CHECK(rpma_recv(end->conn, end->region, LARGE + number * MOST_MESSAGE, MOST_MESSAGE, (void *)number));
}

/* Exchanges the regions of both ends in the private data of the connection. */
static void connect_end(struct end *end, struct rpma_conn_req *request, bool listens) {
    char descriptor[64];
    size_t size = 0;
    struct rpma_conn_private_data data = {.ptr = descriptor};
    struct rpma_conn_private_data theirs;
    CHECK(rpma_mr_get_descriptor_size(end->region, &size));
    CHECK(rpma_mr_get_descriptor(end->region, descriptor));
    data.len = (uint8_t)size;
    if (listens) {
        CHECK(rpma_conn_req_get_private_data(request, &theirs));
        CHECK(rpma_mr_remote_from_descriptor(theirs.ptr, theirs.len, &end->there));
    }
    for (size_t i = 0; i < RECEIVES; ++i) {
        CHECK(rpma_conn_req_recv(request, end->region, LARGE + i * MOST_MESSAGE, MOST_MESSAGE, (void *)i));
    }
    CHECK(rpma_conn_req_connect(&request, &data, &end->conn));
    await(end->conn, RPMA_CONN_ESTABLISHED);
    if (!listens) {
        CHECK(rpma_conn_get_private_data(end->conn, &theirs));
        CHECK(rpma_mr_remote_from_descriptor(theirs.ptr, theirs.len, &end->there));
    }
    CHECK(rpma_conn_get_cq(end->conn, &end->cq));
}

/* The bytes of a message are its number and, for all that follow, a part of that. */
static size_t fill_message(unsigned char *bytes, uint64_t number) {
    const size_t size = sizeof(number) + number * 37 % (MOST_MESSAGE - sizeof(number));
    memcpy(bytes, &number, sizeof(number));
    memset(bytes + sizeof(number), (int)(number & 0xff), size - sizeof(number));
    return size;
}

static void check_message(struct end *end, size_t place, uint32_t length) {
    unsigned char expected[MOST_MESSAGE];
    REQUIRE(length == fill_message(expected, end->received++));
    REQUIRE(memcmp(expected, end->memory + LARGE + place * MOST_MESSAGE, length) == 0);
    post_receive(end, place);
}

/* Takes completions until one of an own operation comes. Returns its status, or that of a receive that
 * failed. */
static enum ibv_wc_status take_own(struct end *end, bool sleeps) {
    while (true) {
        struct ibv_wc completion;
        const int result = rpma_cq_get_wc(end->cq, 1, &completion, NULL);
        if (result == RPMA_E_NO_COMPLETION) {
            if (sleeps) {
                (void)rpma_cq_wait(end->cq); /* there may be none: it was polled before */
            }
            continue;
        }
        CHECK(result);
        if (completion.status != IBV_WC_SUCCESS) {
            return completion.status;
        }
        if ((completion.opcode & IBV_WC_RECV) == 0) {
            return IBV_WC_SUCCESS;
        }
        check_message(end, completion.wr_id, completion.byte_len);
    }
}

/* Sends, writes and flushes until the connection ends. Returns the status of the operation that failed. */
static enum ibv_wc_status work(struct end *end, uint64_t state, atomic_ulong *done) {
    while (true) {
        const uint64_t what = next_random(&state);
        const size_t place = next_random(&state) % (LARGE / 8) * 8;
        int result = 0;
        switch (what % 4) {
            case 0:
                result = rpma_send(end->conn, end->from, 0, fill_message(end->source, end->sent++),
                                   RPMA_F_COMPLETION_ALWAYS, NULL);
                break;
            case 1:
                result = rpma_write(end->conn, end->there, place, end->from, place, 8,
                                    RPMA_F_COMPLETION_ALWAYS, NULL);
                break;
            case 2:
                result =
                    rpma_write(end->conn, end->there, 0, end->from, 0, LARGE, RPMA_F_COMPLETION_ALWAYS, NULL);
                break;
            default:
                result = rpma_flush(end->conn, end->there, 0, LARGE, RPMA_FLUSH_TYPE_VISIBILITY,
                                    RPMA_F_COMPLETION_ALWAYS, NULL);
                break;
        }
        CHECK(result);
        const enum ibv_wc_status status = take_own(end, what / 4 % 2 == 0);
        if (status != IBV_WC_SUCCESS) {
            return status;
        }
        atomic_fetch_add(done, 1);
    }
}

static atomic_ulong own_operations;

/* Is the process that is killed. */
static _Noreturn void be_killed(const char *port) {
    struct end end = {0};
    struct rpma_conn_req *request = NULL;
    struct rpma_ep *ep = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    prepare(&end);
    if (port != NULL) {
        CHECK(rpma_conn_req_new(end.peer, "127.0.0.1", port, end.cfg, &request));
    } else {
        char own[PORT_SIZE];
        find_port("127.0.0.1", own);
        CHECK(rpma_ep_listen(end.peer, "127.0.0.1", own, &ep));
        REQUIRE(write(STDOUT_FILENO, own, PORT_SIZE) == PORT_SIZE);
        CHECK(rpma_ep_next_conn_req(ep, end.cfg, &request));
    }
    connect_end(&end, request, port == NULL);
    (void)work(&end, (uint64_t)getpid(), &own_operations);
    exit(3); /* only the test ends it */
}

/* ---- the process that goes on ---- */

static pid_t start_peer(const char *role, const char *port, int *output) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t process = fork();
    assert_true(process >= 0);
    if (process == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "killed", role, port, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(close(ends[1]), 0);
    *output = ends[0];
    return process;
}

struct traffic {
    struct end end;
    atomic_ulong operations;
    enum ibv_wc_status status;
};

static void *run_traffic(void *argument) {
    struct traffic *const traffic = argument;
    traffic->status = work(&traffic->end, seed, &traffic->operations);
    return NULL;
}

/* Stops the process at a random moment, and kills it a random number of instructions later. */
static void kill_somewhere(pid_t process, struct traffic *traffic, uint64_t *state) {
    const unsigned long enough = atomic_load(&traffic->operations) + 1 + next_random(state) % 50;
    while (atomic_load(&traffic->operations) < enough) {
        sched_yield();
    }
    int status = 0;
    assert_int_equal(ptrace(PTRACE_INTERRUPT, process, NULL, NULL), 0);
    assert_int_equal(waitpid(process, &status, __WALL), process);
    for (uint64_t left = next_random(state) % 2000; left != 0 && WIFSTOPPED(status); --left) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, process, NULL, NULL), 0);
        assert_int_equal(waitpid(process, &status, __WALL), process);
    }
    assert_true(WIFSTOPPED(status));
    assert_int_equal(kill(process, SIGKILL), 0);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void await_end(struct rpma_conn *conn) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    const double killed = now();
    assert_int_equal(rpma_conn_next_event(conn, &event), 0);
    assert_true(event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST);
    assert_true(now() - killed < 30);
}

/* Returns false when this machine does not let a process trace its child. */
static bool kill_one(struct end *own, struct rpma_ep *ep, const char *port, uint64_t *state) {
    struct traffic traffic = {.end = *own};
    struct rpma_conn_req *request = NULL;
    const bool connects = next_random(state) % 2 == 0;
    int output = -1;
    const pid_t process = start_peer(connects ? "connects" : "listens", connects ? port : NULL, &output);
    if (connects) {
        assert_int_equal(rpma_ep_next_conn_req(ep, own->cfg, &request), 0);
    } else {
        char theirs[PORT_SIZE];
        assert_int_equal(read(output, theirs, PORT_SIZE), PORT_SIZE);
        assert_int_equal(rpma_conn_req_new(own->peer, "127.0.0.1", theirs, own->cfg, &request), 0);
    }
    connect_end(&traffic.end, request, connects);
    const bool may_trace = ptrace(PTRACE_SEIZE, process, NULL, NULL) == 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_traffic, &traffic), 0);
    if (may_trace) {
        kill_somewhere(process, &traffic, state);
    } else {
        assert_int_equal(kill(process, SIGKILL), 0);
    }
    await_end(traffic.end.conn);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(traffic.status == IBV_WC_RETRY_EXC_ERR || traffic.status == IBV_WC_WR_FLUSH_ERR);
    int status = 0;
    assert_int_equal(waitpid(process, &status, __WALL), process);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    (void)rpma_conn_disconnect(traffic.end.conn);
    assert_int_equal(rpma_conn_delete(&traffic.end.conn), 0);
    assert_int_equal(rpma_mr_remote_delete(&traffic.end.there), 0);
    assert_int_equal(close(output), 0);
    return may_trace;
}

static void a_peer_may_be_killed_at_any_instruction(void **state) {
    (void)state;
    struct end own = {0};
    struct rpma_ep *ep = NULL;
    char port[PORT_SIZE];
    uint64_t random = seed;
    prepare(&own);
    find_port("127.0.0.1", port);
    assert_int_equal(rpma_ep_listen(own.peer, "127.0.0.1", port, &ep), 0);
    if (!kill_one(&own, ep, port, &random)) {
        print_message("SKIPPED: this machine does not let a process trace its child\n");
        skip();
    }
    /* From here on the process keeps what it has, or less: the engine may not have closed the first
     * connection's. */
    int descriptors = entries_of("/proc/self/fd");
    const int files = entries_with("/dev/shm", "softrdma");
    for (int i = 1; i < kills; ++i) {
        assert_true(kill_one(&own, ep, port, &random));
        const double start = now();
        while (entries_of("/proc/self/fd") > descriptors && now() - start < 5) {
            sched_yield(); /* the engine closes the last connection's when it has drained that */
        }
        const int left = entries_of("/proc/self/fd");
        assert_in_range(left, 1, descriptors);
        descriptors = left;
    }
    assert_int_equal(entries_with("/dev/shm", "softrdma"), files);
    assert_int_equal(rpma_ep_shutdown(&ep), 0);
    assert_int_equal(rpma_mr_dereg(&own.from), 0);
    assert_int_equal(rpma_mr_dereg(&own.region), 0);
    assert_int_equal(rpma_peer_delete(&own.peer), 0);
    assert_int_equal(rpma_conn_cfg_delete(&own.cfg), 0);
    free(own.memory);
    free(own.source);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "listens") == 0) {
        be_killed(NULL);
    }
    if (argc == 3 && strcmp(argv[1], "connects") == 0) {
        be_killed(argv[2]);
    }
    kills = argc > 1 ? atoi(argv[1]) : kills;
    seed = argc > 2 ? strtoul(argv[2], NULL, 10) : seed;
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_peer_may_be_killed_at_any_instruction)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
