/* SPDX-License-Identifier: BSD-3-Clause */
/* many_numbers QUEUE_PAIRS: two processes connect so many queue pairs by number, and each writes on all of
 * them. Beside them a tenth as many queue pairs of each process name numbers that nobody has, or that have
 * their own peers, and each write of theirs fails. Then one process destroys every second queue pair: what
 * the other one writes on theirs fails, and new ones, which have new numbers, are connected in their place.
 * Prints how long each step took. When the limit of open files does not allow so many, there are fewer, and
 * it says so. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../require.h"

/* A queue pair has one descriptor, and two more while both ends try, one of which is to meet within the host;
   a port of 64 numbers has two. */
enum { DESCRIPTORS_ASIDE = 200, PAIRS_A_PORT = 64, LAST_PLACE = 126 << 16, HANG_SECONDS = 120 };

#define CHECK(call) require((errno = (call)) == 0, #call)

/* A peer has to know this of a queue pair. */
struct name {
    uint32_t number;
    uint32_t key;
    uint64_t address;
};

/* Slot i of `slots` is what the peer writes to queue pair i, slot count + i what this end writes on it. */
static struct {
    char process;
    int peer;
    uint32_t count;
    uint32_t stray_count;
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *completions;
    struct ibv_mr *region;
    union ibv_gid gid;
    uint64_t *slots;
    struct ibv_qp **queue_pairs;
    struct ibv_qp **strays;
    struct name *here, *there;
} side;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void say(const char *what, double since) {
    printf("%c: %s: %.2f s\n", side.process, what, seconds() - since);
    fflush(stdout);
}

static void transfer(ssize_t (*way)(int, void *, size_t), void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t more = way(side.peer, (char *)bytes + done, size - done);
        REQUIRE(more > 0);
        done += (size_t)more;
    }
}

static ssize_t write_bytes(int fd, void *bytes, size_t size) {
    return write(fd, bytes, size);
}

static void wait_for_peer(void) {
    char byte = 0;
    transfer(write_bytes, &byte, 1);
    transfer(read, &byte, 1);
}

static void exchange_names(void) {
    const size_t size = side.count * sizeof(struct name);
    transfer(side.process == 'A' ? write_bytes : read, side.process == 'A' ? side.here : side.there, size);
    transfer(side.process == 'A' ? read : write_bytes, side.process == 'A' ? side.there : side.here, size);
}

static void open_all(void) {
    struct ibv_device **const devices = ibv_get_device_list(NULL);
    REQUIRE(devices != NULL && devices[0] != NULL);
    side.context = ibv_open_device(devices[0]);
    REQUIRE(side.context != NULL);
    ibv_free_device_list(devices);
    side.domain = ibv_alloc_pd(side.context);
    REQUIRE(side.domain != NULL);
    side.completions = ibv_create_cq(side.context, (int)(side.count + side.stray_count), NULL, NULL, 0);
    REQUIRE(side.completions != NULL);
    side.slots = calloc(2 * (size_t)side.count, sizeof(uint64_t));
    side.queue_pairs = calloc(side.count, sizeof(*side.queue_pairs));
    side.strays = calloc(side.stray_count, sizeof(*side.strays));
    side.here = calloc(side.count, sizeof(struct name));
    side.there = calloc(side.count, sizeof(struct name));
    REQUIRE(side.slots != NULL && side.queue_pairs != NULL && side.strays != NULL && side.here != NULL &&
            side.there != NULL);
    side.region = ibv_reg_mr(side.domain, side.slots, 2 * (size_t)side.count * sizeof(uint64_t),
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    REQUIRE(side.region != NULL);
    CHECK(ibv_query_gid(side.context, 1, 0, &side.gid));
}

static struct ibv_qp *make(void) {
    struct ibv_qp_init_attr wanted = {.send_cq = side.completions,
                                      .recv_cq = side.completions,
                                      .qp_type = IBV_QPT_RC,
                                      .cap = {1, 1, 1, 1, 0}};
    struct ibv_qp *const made = ibv_create_qp(side.domain, &wanted);
    REQUIRE(made != NULL);
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    CHECK(ibv_modify_qp(made, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    return made;
}

static void make_one(uint32_t i) {
    side.queue_pairs[i] = make();
    side.here[i] = (struct name){.number = side.queue_pairs[i]->qp_num,
                                 .key = side.region->rkey,
                                 .address = (uintptr_t)(side.slots + i)};
}

static void aim(struct ibv_qp *qp, uint32_t number) {
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = number,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = side.gid, .hop_limit = 1}}};
    CHECK(ibv_modify_qp(qp, &ready,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    struct ibv_qp_attr sends = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(ibv_modify_qp(qp, &sends,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Returns the bytes that a process writes on queue pair i in a round. */
static uint64_t word(char process, uint32_t round, uint32_t i) {
    return (uint64_t)process << 56 | (uint64_t)round << 32 | (i + 1);
}

static void post_write(struct ibv_qp *qp, uint32_t i, uint32_t round) {
    side.slots[side.count + i] = word(side.process, round, i);
    struct ibv_sge bytes = {
        .addr = (uintptr_t)(side.slots + side.count + i), .length = 8, .lkey = side.region->lkey};
    struct ibv_send_wr request = {
        .wr_id = i,
        .sg_list = &bytes,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = side.there[i].address, .rkey = side.there[i].key}};
    struct ibv_send_wr *bad = NULL;
    CHECK(ibv_post_send(qp, &request, &bad));
}

/* Takes `succeed` completions of success and `fail` others. */
static void expect_completions(uint32_t succeed, uint32_t fail) {
    double last = seconds();
    for (uint32_t succeeded = 0, failed = 0; succeeded < succeed || failed < fail;) {
        struct ibv_wc completion;
        const int polled = ibv_poll_cq(side.completions, 1, &completion);
        REQUIRE(polled >= 0);
        if (polled == 1) {
            last = seconds();
            ++*(completion.status == IBV_WC_SUCCESS ? &succeeded : &failed);
            REQUIRE(succeeded <= succeed && failed <= fail);
        } else if (seconds() - last > HANG_SECONDS) {
            fprintf(stderr, "%c: %u of %u succeeded, %u of %u failed\n", side.process, succeeded, succeed,
                    failed, fail);
            exit(EXIT_FAILURE);
        }
    }
}

static bool is_renewed(uint32_t i) {
    return i % 2 == 1;
}

static void expect_words(uint32_t round, bool renewed_alone) {
    for (uint32_t i = 0; i < side.count; ++i) {
        if (!renewed_alone || is_renewed(i)) {
            REQUIRE(side.slots[i] == word(side.process == 'A' ? 'B' : 'A', round, i));
        }
    }
}

static void connect_all(void) {
    double since = seconds();
    for (uint32_t i = 0; i < side.count; ++i) {
        make_one(i);
    }
    say("queue pairs made", since);
    exchange_names();
    since = seconds();
    for (uint32_t i = 0; i < side.count; ++i) {
        aim(side.queue_pairs[i], side.there[i].number);
    }
    say("aimed at their peers", since);
    wait_for_peer();
    since = seconds();
    for (uint32_t i = 0; i < side.count; ++i) {
        post_write(side.queue_pairs[i], i, 1);
    }
    expect_completions(side.count, 0);
    say("written", since);
    wait_for_peer();
    expect_words(1, false);
}

/* Every second one names a queue pair of the peer that has its own peer; the others name places that no queue
 * pair has before the ones before it were destroyed. */
static void aim_at_nobody(void) {
    const double since = seconds();
    for (uint32_t i = 0; i < side.stray_count; ++i) {
        side.strays[i] = make();
        aim(side.strays[i], i % 2 == 0 ? side.there[i].number : side.there[i].number | LAST_PLACE);
        post_write(side.strays[i], i, 2);
    }
    expect_completions(0, side.stray_count);
    for (uint32_t i = 0; i < side.stray_count; ++i) {
        CHECK(ibv_destroy_qp(side.strays[i]));
    }
    say("failed at wrong numbers", since);
    wait_for_peer();
    expect_words(1, false);
}

static int compare(const void *a, const void *b) {
    return memcmp(a, b, sizeof(uint32_t));
}

static void renew_half(void) {
    const double since = seconds();
    const uint32_t half = side.count / 2;
    uint32_t *const gone = calloc(half, sizeof(uint32_t));
    REQUIRE(gone != NULL);
    if (side.process == 'A') {
        for (uint32_t i = 0; i < half; ++i) {
            gone[i] = side.here[2 * i + 1].number;
            CHECK(ibv_destroy_qp(side.queue_pairs[2 * i + 1]));
        }
        qsort(gone, half, sizeof(uint32_t), compare);
    }
    wait_for_peer();
    if (side.process == 'B') {
        for (uint32_t i = 0; i < half; ++i) {
            post_write(side.queue_pairs[2 * i + 1], 2 * i + 1, 3);
        }
        expect_completions(0, half);
        for (uint32_t i = 0; i < half; ++i) {
            CHECK(ibv_destroy_qp(side.queue_pairs[2 * i + 1]));
        }
    }
    uint32_t used_again = 0;
    for (uint32_t i = 0; i < half; ++i) {
        make_one(2 * i + 1);
        used_again += bsearch(&side.here[2 * i + 1].number, gone, half, sizeof(uint32_t), compare) != NULL;
    }
    free(gone);
    exchange_names();
    expect_words(1, false);
    for (uint32_t i = 0; i < half; ++i) {
        aim(side.queue_pairs[2 * i + 1], side.there[2 * i + 1].number);
    }
    wait_for_peer();
    for (uint32_t i = 0; i < half; ++i) {
        post_write(side.queue_pairs[2 * i + 1], 2 * i + 1, 4);
    }
    expect_completions(half, 0);
    wait_for_peer();
    expect_words(4, true);
    say("half of them renewed", since);
    if (side.process == 'A') {
        printf("A: %u of %u new numbers had been destroyed ones\n", used_again, half);
    }
}

static void close_all(void) {
    const double since = seconds();
    for (uint32_t i = 0; i < side.count; ++i) {
        CHECK(ibv_destroy_qp(side.queue_pairs[i]));
    }
    say("destroyed", since);
    CHECK(ibv_destroy_cq(side.completions));
    CHECK(ibv_dereg_mr(side.region));
    CHECK(ibv_dealloc_pd(side.domain));
    CHECK(ibv_close_device(side.context));
}

static uint32_t allowed(uint32_t wanted) {
    struct rlimit files;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
    const rlim_t most = (files.rlim_cur - DESCRIPTORS_ASIDE) * PAIRS_A_PORT / (3 * PAIRS_A_PORT + 2);
    if (files.rlim_cur == RLIM_INFINITY || wanted <= most) {
        return wanted;
    }
    printf("%u queue pairs, not %u: the limit of open files is %llu\n", (unsigned)most, wanted,
           (unsigned long long)files.rlim_cur);
    return (uint32_t)most;
}

int main(int argc, char **argv) {
    const int wanted = argc == 2 ? atoi(argv[1]) : 0;
    if (wanted < 10) {
        fprintf(stderr, "usage: %s QUEUE_PAIRS (10 or more)\n", argv[0]);
        return 2;
    }
    side.count = allowed((uint32_t)wanted);
    side.stray_count = side.count / 10;
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const pid_t child = fork();
    REQUIRE(child != -1);
    side.process = child == 0 ? 'B' : 'A';
    side.peer = ends[child == 0];
    close(ends[child != 0]);

    open_all();
    connect_all();
    aim_at_nobody();
    renew_half();
    wait_for_peer();
    close_all();
    int status = 0;
    if (child != 0) {
        REQUIRE(waitpid(child, &status, 0) == child);
    }
    return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
