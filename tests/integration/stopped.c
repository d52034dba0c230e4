/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests that a process writes and reads the memory of a peer on this host without any work of the peer: the
 * peer is stopped meanwhile. Then the peer runs another program, or is killed, and the next write fails. The
 * memory is shared, so that the test sees it too. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <librpma.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../compat/program.h"

/* cmocka.h, last, because it has macros with everyday names. */
#include "../api/test.h"

enum { BYTES = 3 << 20, TRIES = 200, MANY = 20, BURST = 64, AT_ONCE = 16 };

struct peer {
    pid_t process;
    int commands; /* the test's end */
    int file; /* the memory's, which both processes have open; -1: each process has its own memory there */
    _Atomic uint64_t *memory;
    struct rpma_peer *own;
    struct rpma_conn *conn;
    struct rpma_mr_local *local;
    struct rpma_mr_remote *there;
    uint64_t *source;
};

/* The peer does nothing after the connection is there. It runs another program when it is told to. */
static _Noreturn void be_target(void *memory, int report, int commands) {
    char port[PORT_SIZE];
    char descriptor[64];
    char command = 0;
    size_t size = 0;
    struct rpma_conn_private_data data = {.ptr = descriptor};
    struct rpma_conn_req *request = NULL;
    struct rpma_mr_local *region = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_ep *ep = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    struct rpma_peer *const peer = new_peer("127.0.0.1");
    find_port("127.0.0.1", port);
    CHECK(rpma_ep_listen(peer, "127.0.0.1", port, &ep));
    REQUIRE(write(report, port, PORT_SIZE) == PORT_SIZE);
    CHECK(rpma_mr_reg(peer, memory, BYTES,
                      RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
                      &region));
    CHECK(rpma_mr_get_descriptor_size(region, &size));
    CHECK(rpma_mr_get_descriptor(region, descriptor));
    data.len = (uint8_t)size;
    CHECK(rpma_ep_next_conn_req(ep, NULL, &request));
    CHECK(rpma_conn_req_connect(&request, &data, &conn));
    await(conn, RPMA_CONN_ESTABLISHED);
    REQUIRE(read(commands, &command, 1) == 1);
    execlp("sleep", "sleep", "60", NULL);
    _exit(3);
}

static void connect_to_target(struct peer *peer, int file) {
    int report[2];
    int commands[2];
    char port[PORT_SIZE];
    struct rpma_conn_req *request = NULL;
    struct rpma_conn_private_data data;
    struct rpma_conn_cfg *cfg = NULL;
    peer->file = file;
    peer->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                        file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    assert_ptr_not_equal(peer->memory, MAP_FAILED);
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    assert_int_equal(pipe2(commands, O_CLOEXEC), 0);
    peer->process = fork();
    assert_int_not_equal(peer->process, -1);
    if (peer->process == 0) {
        be_target(peer->memory, report[1], commands[0]);
    }
    assert_int_equal(read(report[0], port, PORT_SIZE), PORT_SIZE);
    close(report[0]);
    close(report[1]);
    close(commands[0]);
    peer->commands = commands[1];
    peer->own = new_peer("127.0.0.1");
    peer->source = aligned_alloc(4096, BYTES);
    assert_non_null(peer->source);
    memset(peer->source, 0, BYTES);
    assert_int_equal(rpma_mr_reg(peer->own, peer->source, BYTES,
                                 RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST, &peer->local),
                     0);
    assert_int_equal(rpma_conn_cfg_new(&cfg), 0);
    assert_int_equal(rpma_conn_cfg_set_sq_size(cfg, BURST), 0);
    assert_int_equal(rpma_conn_cfg_set_cq_size(cfg, BURST), 0);
    assert_int_equal(rpma_conn_req_new(peer->own, "127.0.0.1", port, cfg, &request), 0);
    assert_int_equal(rpma_conn_cfg_delete(&cfg), 0);
    assert_int_equal(rpma_conn_req_connect(&request, NULL, &peer->conn), 0);
    await(peer->conn, RPMA_CONN_ESTABLISHED);
    assert_int_equal(rpma_conn_get_private_data(peer->conn, &data), 0);
    assert_int_equal(rpma_mr_remote_from_descriptor(data.ptr, data.len, &peer->there), 0);
}

static void connect_to_file(struct peer *peer) {
    const int file = memfd_create("stopped", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, BYTES), 0);
    connect_to_target(peer, file);
}

/* Returns what the peer has in its memory. */
static uint64_t number_there(const struct peer *peer, size_t place) {
    uint64_t number = 0;
    const struct iovec here = {.iov_base = &number, .iov_len = sizeof(number)};
    const struct iovec there = {.iov_base = (void *)&peer->memory[place], .iov_len = sizeof(number)};
    assert_int_equal(process_vm_readv(peer->process, &here, 1, &there, 1, 0), sizeof(number));
    return number;
}

static enum ibv_wc_status status_of_next(const struct peer *peer) {
    struct rpma_cq *cq = NULL;
    struct ibv_wc completion;
    assert_int_equal(rpma_conn_get_cq(peer->conn, &cq), 0);
    int result = 0;
    while ((result = rpma_cq_get_wc(cq, 1, &completion, NULL)) == RPMA_E_NO_COMPLETION) {
        (void)rpma_cq_wait(cq); /* there may be none: it was polled before */
    }
    assert_int_equal(result, 0);
    return completion.status;
}

static enum ibv_wc_status write_there(const struct peer *peer, size_t bytes, uint64_t value) {
    for (size_t i = 0; i < bytes / sizeof(value); ++i) {
        peer->source[i] = value;
    }
    assert_int_equal(
        rpma_write(peer->conn, peer->there, 0, peer->local, 0, bytes, RPMA_F_COMPLETION_ALWAYS, NULL), 0);
    return status_of_next(peer);
}

static void stop(const struct peer *peer) {
    int status = 0;
    assert_int_equal(kill(peer->process, SIGSTOP), 0);
    assert_int_equal(waitpid(peer->process, &status, WUNTRACED), peer->process);
    assert_true(WIFSTOPPED(status));
}

/* Returns with a stopped peer whose memory can be accessed all the same. The peer may be stopped before it
 * has taken the write before, and then the next one waits in the ring. */
static void stop_accessible(const struct peer *peer) {
    for (uint64_t number = 1; number <= TRIES; ++number) {
        assert_int_equal(write_there(peer, sizeof(number), 2 * number), IBV_WC_SUCCESS);
        while (number_there(peer, 0) != 2 * number) {
            sched_yield();
        }
        stop(peer);
        assert_int_equal(write_there(peer, sizeof(number), 2 * number + 1), IBV_WC_SUCCESS);
        if (number_there(peer, 0) == 2 * number + 1) {
            return;
        }
        assert_int_equal(kill(peer->process, SIGCONT), 0);
        while (number_there(peer, 0) != 2 * number + 1) {
            sched_yield();
        }
    }
    fail_msg("in %d tries the memory of a stopped peer was not written", TRIES);
}

static void end(struct peer *peer) {
    int status = 0;
    (void)kill(peer->process, SIGKILL);
    assert_int_equal(waitpid(peer->process, &status, 0), peer->process);
    close(peer->commands);
    if (peer->file >= 0) {
        close(peer->file);
    }
    (void)rpma_conn_disconnect(peer->conn);
    assert_int_equal(rpma_conn_delete(&peer->conn), 0);
    assert_int_equal(rpma_mr_remote_delete(&peer->there), 0);
    assert_int_equal(rpma_mr_dereg(&peer->local), 0);
    assert_int_equal(rpma_peer_delete(&peer->own), 0);
    free(peer->source);
    assert_int_equal(munmap((void *)peer->memory, BYTES), 0);
}

static void a_stopped_peer_is_written_and_read(void **state) {
    (void)state;
    struct peer peer = {0};
    connect_to_file(&peer);
    stop_accessible(&peer);
    assert_int_equal(write_there(&peer, BYTES, 77), IBV_WC_SUCCESS);
    for (size_t i = 0; i < BYTES / sizeof(uint64_t); ++i) {
        assert_int_equal(atomic_load(&peer.memory[i]), 77);
        atomic_store(&peer.memory[i], i);
    }
    assert_int_equal(
        rpma_read(peer.conn, peer.local, 0, peer.there, 0, BYTES, RPMA_F_COMPLETION_ALWAYS, NULL), 0);
    assert_int_equal(status_of_next(&peer), IBV_WC_SUCCESS);
    for (size_t i = 0; i < BYTES / sizeof(uint64_t); ++i) {
        assert_int_equal(peer.source[i], i);
    }
    end(&peer);
}

/* The memory is a file's, so that this process maps it after some writes. */
static void an_atomic_write_needs_no_peer(void **state) {
    (void)state;
    const uint64_t value = 0x123456789abcdef0;
    char bytes[sizeof(value)];
    struct peer peer = {0};
    connect_to_file(&peer);
    stop_accessible(&peer);
    for (uint64_t number = 0; number < MANY; ++number) {
        assert_int_equal(write_there(&peer, sizeof(number), number), IBV_WC_SUCCESS);
        assert_int_equal(atomic_load(&peer.memory[0]), number);
    }
    memcpy(bytes, &value, sizeof(value));
    assert_int_equal(
        rpma_atomic_write(peer.conn, peer.there, sizeof(value), bytes, RPMA_F_COMPLETION_ALWAYS, NULL), 0);
    assert_int_equal(status_of_next(&peer), IBV_WC_SUCCESS);
    assert_int_equal(atomic_load(&peer.memory[1]), value);
    end(&peer);
}

/* The kernel copies each write to memory that cannot be mapped here. In a burst that would take longer than
 * to leave the writes to the peer. */
static void a_burst_to_private_memory_waits_for_the_peer(void **state) {
    (void)state;
    struct peer peer = {0};
    connect_to_target(&peer, -1);
    stop_accessible(&peer);
    for (uint64_t number = 0; number < MANY; ++number) {
        assert_int_equal(write_there(&peer, sizeof(number), number), IBV_WC_SUCCESS);
        assert_int_equal(number_there(&peer, 0), number);
    }
    for (uint64_t i = 0; i < BURST; ++i) {
        const size_t offset = i * sizeof(i);
        peer.source[i] = 1000 + i;
        assert_int_equal(
            rpma_write(peer.conn, peer.there, offset, peer.local, offset, sizeof(i),
                       i == BURST - 1 ? RPMA_F_COMPLETION_ALWAYS : RPMA_F_COMPLETION_ON_ERROR, NULL),
            0);
    }
    assert_int_equal(status_of_next(&peer), IBV_WC_SUCCESS);
    assert_int_equal(number_there(&peer, AT_ONCE - 1), 1000 + AT_ONCE - 1);
    assert_int_equal(number_there(&peer, BURST - 1), 0);
    assert_int_equal(kill(peer.process, SIGCONT), 0);
    while (number_there(&peer, BURST - 1) != 1000 + BURST - 1) {
        sched_yield();
    }
    for (size_t i = 0; i < BURST; ++i) {
        assert_int_equal(number_there(&peer, i), 1000 + i);
    }
    end(&peer);
}

/* Writes until one fails, as it has to within the alarm's time. */
static void expect_end(struct peer *peer) {
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    while (status == IBV_WC_SUCCESS) {
        status = write_there(peer, sizeof(uint64_t), 5);
    }
    end(peer);
}

static void a_killed_peer_is_not_written(void **state) {
    (void)state;
    struct peer peer = {0};
    connect_to_file(&peer);
    stop_accessible(&peer);
    assert_int_equal(kill(peer.process, SIGKILL), 0);
    expect_end(&peer);
}

static void another_program_is_not_written(void **state) {
    (void)state;
    struct peer peer = {0};
    connect_to_file(&peer);
    stop_accessible(&peer);
    assert_int_equal(kill(peer.process, SIGCONT), 0);
    assert_int_equal(write(peer.commands, "x", 1), 1);
    expect_end(&peer);
}

int main(void) {
    alarm(100);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_peer_is_written_and_read),
        cmocka_unit_test(an_atomic_write_needs_no_peer),
        cmocka_unit_test(a_burst_to_private_memory_waits_for_the_peer),
        cmocka_unit_test(a_killed_peer_is_not_written),
        cmocka_unit_test(another_program_is_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
