/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests that an initiator on this host, which is stopped (SIGSTOP) at random moments while it writes into its
 * peer's memory itself, stores nothing there after the peer has deregistered the memory, or is killed.
 *     test_stopped_initiator [ROUNDS]: 25 stops of each kind unless told */
#define _GNU_SOURCE
#include <librpma.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../compat/program.h"

/* cmocka.h, last, because it has macros with everyday names. */
#include "../api/test.h"

enum { BYTES = 1 << 20, WRITTEN = 0x5a, REUSED = 0xa5, LONGEST_WAIT_NS = 200000 };

/* The memory is mapped by the initiator after some writes, or copied by the kernel. */
enum { WRITES_BEFORE_STOP = 40 };

/* What a target is told to do. Each order has an answer; the last one ends its connection. */
enum { DEREGISTER = 'd', COUNT = 'c' };

/* A process of the test, and the socket on which it takes orders and answers. */
struct process {
    pid_t id;
    int socket;
};

static unsigned rounds = 25;
static _Atomic unsigned *writes_done; /* by the initiator */

static void send_bytes(int socket, const void *bytes, size_t size) {
    REQUIRE(write(socket, bytes, size) == (ssize_t)size);
}

/* Returns false at the end of the orders. */
static bool receive_bytes(int socket, void *bytes, size_t size) {
    const ssize_t count = recv(socket, bytes, size, MSG_WAITALL);
    REQUIRE(count == (ssize_t)size || count == 0);
    return count != 0;
}

static int foreign_bytes(const unsigned char *memory) {
    int count = 0;
    for (size_t i = 0; i < BYTES; ++i) {
        count += memory[i] != REUSED ? 1 : 0;
    }
    return count;
}

/* Does what it is told to, until it has counted the bytes that are not its own. When the memory is
 * deregistered, it is used for something else. Returns false at the end of the orders. */
static bool obey(int socket, unsigned char *memory, struct rpma_mr_local **region) {
    char order = 0;
    while (order != COUNT) {
        if (!receive_bytes(socket, &order, 1)) {
            return false;
        }
        int answer = 0;
        if (order == DEREGISTER) {
            answer = rpma_mr_dereg(region);
            memset(memory, REUSED, BYTES);
        } else {
            answer = foreign_bytes(memory);
        }
        send_bytes(socket, &answer, sizeof(answer));
    }
    return true;
}

/* Serves one connection after the other. */
static _Noreturn void be_target(unsigned char *memory, int socket) {
    char port[PORT_SIZE];
    bool goes_on = true;
    struct rpma_ep *ep = NULL;
    struct rpma_peer *const peer = new_peer("127.0.0.1");
    find_port("127.0.0.1", port);
    CHECK(rpma_ep_listen(peer, "127.0.0.1", port, &ep));
    while (goes_on) {
        char descriptor[64];
        size_t size = 0;
        struct rpma_mr_local *region = NULL;
        struct rpma_conn_req *request = NULL;
        struct rpma_conn *conn = NULL;
        struct rpma_conn_private_data data = {.ptr = descriptor};
        CHECK(rpma_mr_reg(peer, memory, BYTES, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
                          &region));
        CHECK(rpma_mr_get_descriptor_size(region, &size));
        CHECK(rpma_mr_get_descriptor(region, descriptor));
        data.len = (uint8_t)size;
        send_bytes(socket, port, sizeof(port));
        CHECK(rpma_ep_next_conn_req(ep, NULL, &request));
        CHECK(rpma_conn_req_connect(&request, &data, &conn));
        await(conn, RPMA_CONN_ESTABLISHED);
        goes_on = obey(socket, memory, &region);
        (void)rpma_conn_disconnect(conn);
        CHECK(rpma_conn_delete(&conn));
    }
    _exit(EXIT_SUCCESS);
}

static size_t random_size(void) {
    const size_t most = (size_t)8 << (random() % 18);
    return most == 8 ? most : most / 2 + (size_t)random() % (most / 2) + 1;
}

/* Writes until a write fails. */
static void write_to(struct rpma_conn *conn, struct rpma_mr_remote *there,
                     const struct rpma_mr_local *source) {
    static const char word[8] = {WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN, WRITTEN};
    struct rpma_cq *cq = NULL;
    struct ibv_wc completion = {.status = IBV_WC_SUCCESS};
    CHECK(rpma_conn_get_cq(conn, &cq));
    while (completion.status == IBV_WC_SUCCESS) {
        const size_t size = random_size();
        const size_t at = (size_t)random() % (BYTES - size + 1);
        const int posted =
            random() % 4 == 0
                ? rpma_atomic_write(conn, there, at / 8 * 8, word, RPMA_F_COMPLETION_ALWAYS, NULL)
                : rpma_write(conn, there, at, source, 0, size, RPMA_F_COMPLETION_ALWAYS, NULL);
        if (posted != 0) {
            return;
        }
        while (rpma_cq_get_wc(cq, 1, &completion, NULL) == RPMA_E_NO_COMPLETION) {
        }
        atomic_fetch_add(writes_done, 1);
    }
}

static _Noreturn void be_initiator(int socket) {
    char port[PORT_SIZE];
    char end = 'e';
    unsigned char *const bytes = malloc(BYTES);
    struct rpma_mr_local *source = NULL;
    struct rpma_peer *const peer = new_peer("127.0.0.1");
    REQUIRE(bytes != NULL);
    memset(bytes, WRITTEN, BYTES);
    CHECK(rpma_mr_reg(peer, bytes, BYTES, RPMA_MR_USAGE_WRITE_SRC, &source));
    while (receive_bytes(socket, port, sizeof(port))) {
        struct rpma_conn_private_data data;
        struct rpma_mr_remote *there = NULL;
        struct rpma_conn *conn = connect_to(peer, "127.0.0.1", port);
        CHECK(rpma_conn_get_private_data(conn, &data));
        CHECK(rpma_mr_remote_from_descriptor(data.ptr, data.len, &there));
        write_to(conn, there, source);
        (void)rpma_conn_disconnect(conn);
        CHECK(rpma_conn_delete(&conn));
        CHECK(rpma_mr_remote_delete(&there));
        send_bytes(socket, &end, 1);
    }
    _exit(EXIT_SUCCESS);
}

/* Starts a target that has the memory, or an initiator when there is none. */
static struct process start(unsigned char *memory) {
    int sockets[2];
    struct process process = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    process.id = fork();
    assert_int_not_equal(process.id, -1);
    if (process.id == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(sockets[0]);
        if (memory != NULL) {
            be_target(memory, sockets[1]);
        }
        be_initiator(sockets[1]);
    }
    close(sockets[1]);
    process.socket = sockets[0];
    return process;
}

static void end(const struct process *process) {
    int status = 0;
    (void)kill(process->id, SIGKILL);
    assert_int_equal(waitpid(process->id, &status, 0), process->id);
    close(process->socket);
}

static void spin(long nanoseconds) {
    struct timespec begun;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec < nanoseconds);
}

static unsigned char *map(int sharing) {
    unsigned char *const memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static unsigned char *map_file(void) {
    const int file = memfd_create("stopped_initiator", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, BYTES), 0);
    unsigned char *const memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory; /* the descriptor leads the initiator to the file */
}

static void connect_them(const struct process *target, const struct process *initiator) {
    char port[PORT_SIZE];
    assert_true(receive_bytes(target->socket, port, sizeof(port)));
    send_bytes(initiator->socket, port, sizeof(port));
}

static void await_writes(void) {
    const unsigned before = atomic_load(writes_done);
    while (atomic_load(writes_done) - before < WRITES_BEFORE_STOP) {
        sched_yield();
    }
}

/* Stops the initiator in one of its writes, or between two. */
static void stop(const struct process *initiator) {
    int status = 0;
    await_writes();
    spin(random() % LONGEST_WAIT_NS);
    assert_int_equal(kill(initiator->id, SIGSTOP), 0);
    assert_int_equal(waitpid(initiator->id, &status, WUNTRACED), initiator->id);
    assert_true(WIFSTOPPED(status));
}

static void await_end(const struct process *initiator) {
    char ended = 0;
    assert_true(receive_bytes(initiator->socket, &ended, 1));
}

static int ordered(const struct process *target, char order) {
    int answer = 0;
    send_bytes(target->socket, &order, 1);
    assert_true(receive_bytes(target->socket, &answer, sizeof(answer)));
    return answer;
}

static void deregistered_memory_stays(unsigned char *memory) {
    const struct process initiator = start(NULL);
    const struct process target = start(memory);
    for (unsigned round = 0; round < rounds; ++round) {
        connect_them(&target, &initiator);
        stop(&initiator);
        assert_int_equal(ordered(&target, DEREGISTER), 0);
        assert_int_equal(kill(initiator.id, SIGCONT), 0);
        await_end(&initiator);
        assert_int_equal(ordered(&target, COUNT), 0);
    }
    end(&target);
    end(&initiator);
    assert_int_equal(munmap(memory, BYTES), 0);
}

static void a_file_is_not_written_after_deregistering(void **state) {
    (void)state;
    deregistered_memory_stays(map_file());
}

static void private_memory_is_not_written_after_deregistering(void **state) {
    (void)state;
    deregistered_memory_stays(map(MAP_PRIVATE));
}

static void a_file_is_not_written_after_its_target_was_killed(void **state) {
    (void)state;
    const struct process initiator = start(NULL);
    unsigned char *const memory = map_file();
    for (unsigned round = 0; round < rounds; ++round) {
        const struct process target = start(memory);
        connect_them(&target, &initiator);
        stop(&initiator);
        end(&target);
        memset(memory, REUSED, BYTES);
        assert_int_equal(kill(initiator.id, SIGCONT), 0);
        await_end(&initiator);
        assert_int_equal(foreign_bytes(memory), 0);
    }
    end(&initiator);
    assert_int_equal(munmap(memory, BYTES), 0);
}

int main(int argc, char *argv[]) {
    if (argc > 1) {
        rounds = (unsigned)strtoul(argv[1], NULL, 10);
    }
    alarm(60 + 2 * rounds);
    signal(SIGPIPE, SIG_IGN);
    srandom((unsigned)getpid());
    writes_done = (_Atomic unsigned *)map(MAP_SHARED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_not_written_after_deregistering),
        cmocka_unit_test(private_memory_is_not_written_after_deregistering),
        cmocka_unit_test(a_file_is_not_written_after_its_target_was_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
