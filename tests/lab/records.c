/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * records: what a power cut may not lose. A client pushes numbered records into a server's durable memory,
 * each with a write, a persistent flush, and then its number as the committed one, by an atomic write and a
 * persistent flush.
 *
 *     records push FILE SEED        both ends, as processes; prints the number of each record that is
 * acknowledged records check FILE SEED LAST  whether FILE has all that a pusher of SEED was acknowledged up
 * to LAST
 *
 * FILE, which is made when it is not there, is a ring of SLOTS records behind the committed number. A record
 * is its number, bytes that follow from it and the seed, and a checksum. Pushing goes on after the committed
 * number.
 */
#define _GNU_SOURCE /* MAP_SYNC */
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ADDRESS "127.0.0.1"
#define SLOTS 64
#define BODY 4072

struct record {
    uint64_t number; /* from 1 */
    uint8_t body[BODY];
    uint64_t checksum;
};

struct ring {
    uint64_t committed;
    uint8_t unused[4088];
    struct record slot[SLOTS];
};

static void check(int result, const char *call) {
    if (result != 0) {
        fprintf(stderr, "%s: %s\n", call, rpma_err_2str(result));
        exit(EXIT_FAILURE);
    }
}
#define CHECK(call) check((call), #call)

static void require(bool holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(EXIT_FAILURE);
    }
}
#define REQUIRE(holds) require((holds), #holds)

/* FNV-1a of a record's bytes before the checksum. */
static uint64_t checksum_of(const struct record *record) {
    const uint8_t *const bytes = (const uint8_t *)record;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < offsetof(struct record, checksum); ++i) {
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static void make_record(struct record *record, uint64_t number, uint64_t seed) {
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + number;
    record->number = number;
    for (size_t i = 0; i < BODY; ++i) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        record->body[i] = (uint8_t)(state >> 56);
    }
    record->checksum = checksum_of(record);
}

static struct ring *map_ring(const char *file) {
    const int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(posix_fallocate(fd, 0, sizeof(struct ring)) == 0);
    REQUIRE(fsync(fd) == 0); /* its name and length: they are made before anything is acknowledged */
    void *memory =
        mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    if (memory == MAP_FAILED) {
        memory = mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    REQUIRE(memory != MAP_FAILED);
    close(fd);
    return memory;
}

static struct rpma_peer *new_peer(void) {
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    CHECK(rpma_utils_get_ibv_context(ADDRESS, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    CHECK(rpma_peer_new(context, &peer));
    return peer;
}

static void await(struct rpma_conn *conn, enum rpma_conn_event expected) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    CHECK(rpma_conn_next_event(conn, &event));
    REQUIRE(event == expected);
}

/* Waits until the client has gone; the writes and flushes are the device's. */
static void serve(const char *file, const char *port, int ready_fd) {
    struct rpma_peer *const peer = new_peer();
    struct rpma_ep *ep = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_mr_local *mr = NULL;
    unsigned char descriptor[64];
    size_t size = 0;
    CHECK(rpma_mr_reg(peer, map_ring(file), sizeof(struct ring),
                      RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT,
                      &mr));
    CHECK(rpma_mr_get_descriptor_size(mr, &size));
    REQUIRE(size <= sizeof(descriptor));
    CHECK(rpma_mr_get_descriptor(mr, descriptor));
    CHECK(rpma_ep_listen(peer, ADDRESS, port, &ep));
    REQUIRE(write(ready_fd, "", 1) == 1);
    CHECK(rpma_ep_next_conn_req(ep, NULL, &request));
    CHECK(
        rpma_conn_req_connect(&request, &(struct rpma_conn_private_data){descriptor, (uint8_t)size}, &conn));
    await(conn, RPMA_CONN_ESTABLISHED);
    await(conn, RPMA_CONN_CLOSED);
}

static void complete(struct rpma_conn *conn) {
    struct rpma_cq *cq = NULL;
    struct ibv_wc wc;
    int result = RPMA_E_NO_COMPLETION;
    CHECK(rpma_conn_get_cq(conn, &cq));
    while (result == RPMA_E_NO_COMPLETION) {
        CHECK(rpma_cq_wait(cq));
        result = rpma_cq_get_wc(cq, 1, &wc, NULL);
    }
    CHECK(result);
    REQUIRE(wc.status == IBV_WC_SUCCESS);
}

static void flush(struct rpma_conn *conn, struct rpma_mr_remote *remote, size_t offset, size_t size) {
    CHECK(rpma_flush(conn, remote, offset, size, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, NULL));
    complete(conn);
}

/* For ever: the power cut ends it. */
static void push(const char *port, uint64_t seed) {
    struct rpma_peer *const peer = new_peer();
    /* A local record, and room for what the ring says is committed. */
    struct record *const memory = aligned_alloc(4096, 2 * sizeof(struct record));
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_mr_remote *remote = NULL;
    struct rpma_peer_cfg *peer_cfg = NULL;
    struct rpma_conn_private_data data = {NULL, 0};
    REQUIRE(memory != NULL);
    CHECK(rpma_mr_reg(peer, memory, 2 * sizeof(struct record),
                      RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST, &mr));
    CHECK(rpma_conn_req_new(peer, ADDRESS, port, NULL, &request));
    CHECK(rpma_conn_req_connect(&request, NULL, &conn));
    await(conn, RPMA_CONN_ESTABLISHED);
    CHECK(rpma_conn_get_private_data(conn, &data));
    CHECK(rpma_mr_remote_from_descriptor(data.ptr, data.len, &remote));
    /* The server's region is durable by the device's flush: it was registered for that. */
    CHECK(rpma_peer_cfg_new(&peer_cfg));
    CHECK(rpma_peer_cfg_set_direct_write_to_pmem(peer_cfg, true));
    CHECK(rpma_conn_apply_remote_peer_cfg(conn, peer_cfg));

    CHECK(rpma_read(conn, mr, sizeof(struct record), remote, offsetof(struct ring, committed),
                    sizeof(uint64_t), RPMA_F_COMPLETION_ALWAYS, NULL));
    complete(conn);
    for (uint64_t number = memory[1].number + 1;; ++number) {
        const size_t place = offsetof(struct ring, slot) + number % SLOTS * sizeof(struct record);
        make_record(memory, number, seed);
        CHECK(
            rpma_write(conn, remote, place, mr, 0, sizeof(struct record), RPMA_F_COMPLETION_ON_ERROR, NULL));
        flush(conn, remote, place, sizeof(struct record));
        CHECK(rpma_atomic_write(conn, remote, offsetof(struct ring, committed), (const char *)&number,
                                RPMA_F_COMPLETION_ON_ERROR, NULL));
        flush(conn, remote, offsetof(struct ring, committed), sizeof(uint64_t));
        printf("%" PRIu64 "\n", number);
        fflush(stdout);
    }
}

/* Nothing behind the committed number counts; all that the ring still has up to it must be whole. */
static int verify(const char *file, uint64_t seed, uint64_t last) {
    const struct ring *const ring = map_ring(file);
    const uint64_t committed = ring->committed;
    int lost = committed < last;
    /* The slot behind the committed one may have been half overwritten: it held the oldest. */
    for (uint64_t back = 0; back + 1 < SLOTS && back < committed; ++back) {
        static struct record expected;
        const struct record *const found = &ring->slot[(committed - back) % SLOTS];
        make_record(&expected, committed - back, seed);
        if (memcmp(found, &expected, sizeof(expected)) != 0) {
            printf("record %" PRIu64 " is not as it was written: number %" PRIu64 ", checksum %s\n",
                   committed - back, found->number,
                   found->checksum == checksum_of(found) ? "right" : "wrong");
            lost = 1;
        }
    }
    printf("committed %" PRIu64 ", acknowledged at least %" PRIu64 ": %s\n", committed, last,
           lost ? "LOST" : "all there");
    return lost;
}

int main(int argc, char *argv[]) {
    int ready[2];
    char byte;
    if (argc == 5 && strcmp(argv[1], "check") == 0) {
        return verify(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    }
    if (argc != 4 || strcmp(argv[1], "push") != 0) {
        fprintf(stderr, "usage: %s push FILE SEED | check FILE SEED LAST\n", argv[0]);
        return 2;
    }
    const char *const port = "7204";
    REQUIRE(pipe(ready) == 0);
    const pid_t server = fork();
    REQUIRE(server >= 0);
    if (server == 0) {
        close(ready[0]);
        serve(argv[2], port, ready[1]);
        return EXIT_SUCCESS;
    }
    close(ready[1]);
    REQUIRE(read(ready[0], &byte, 1) == 1);
    push(port, strtoull(argv[3], NULL, 10));
}
