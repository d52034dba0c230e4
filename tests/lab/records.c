/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * records: what a power cut may not lose. A client pushes numbered records into the durable memory of a
 * server (both ends, as processes), each with a write, a persistent flush, and then its number as the
 * committed one, by an atomic write and a persistent flush.
 *
 *     records NAME ADDRESS dax|pages FILE OFFSET SEED LAST [COUNT]
 *
 * At OFFSET of FILE, which is made when it is not there, is a ring of SLOTS records behind the committed
 * number. First it says what is there: all that was acknowledged up to LAST, whole, or the program ends
 * with 1. Then it pushes COUNT records behind the committed one, or goes on until the power is cut; each that
 * is acknowledged is a line of its own: NAME and the number, by one write(2). A record is its number, bytes
 * that follow from it and the seed, and a checksum. `dax` insists on a mapping whose flush is of cache lines,
 * `pages` is the page cache.
 */
#define _GNU_SOURCE /* MAP_SYNC */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../compat/program.h"

#define SLOTS 64
#define BODY 4072 /* makes a record a little smaller than a page, so that most records are in two pages */
/* This much of the file is mapped: devdax maps nothing smaller. */
#define MAPPED ((size_t)2 << 20)
#define OFFER_MAX 64

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
_Static_assert(sizeof(struct ring) <= MAPPED, "a ring is mapped whole");

struct run {
    const char *name;
    const char *address;
    struct ring *ring;
    uint64_t seed;
};

/* Returns FNV-1a of a record's bytes before the checksum. */
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

static struct ring *map_ring(const char *file, off_t offset, bool is_dax) {
    struct stat status;
    const int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(fstat(fd, &status) == 0);
    if (S_ISREG(status.st_mode)) {
        REQUIRE(posix_fallocate(fd, offset, MAPPED) == 0);
        REQUIRE(fsync(fd) == 0); /* its name and length are durable before a record is acknowledged */
    }
    void *const memory = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE,
                              is_dax ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED, fd, offset);
    REQUIRE(memory != MAP_FAILED);
    close(fd);
    return memory;
}

/* Records after the committed number do not count; all records that the ring still has up to it must be
 * whole. */
static bool is_whole(const struct run *run, uint64_t last) {
    const uint64_t committed = run->ring->committed;
    bool whole = committed >= last;
    /* The slot after the committed one held the oldest record, and may be half overwritten. */
    for (uint64_t back = 0; back + 1 < SLOTS && back < committed; ++back) {
        static struct record expected;
        const struct record *const found = &run->ring->slot[(committed - back) % SLOTS];
        make_record(&expected, committed - back, run->seed);
        if (memcmp(found, &expected, sizeof(expected)) != 0) {
            printf("%s: record %" PRIu64 " is not as it was written: number %" PRIu64 ", checksum %s\n",
                   run->name, committed - back, found->number,
                   found->checksum == checksum_of(found) ? "right" : "wrong");
            whole = false;
        }
    }
    printf("%s: committed %" PRIu64 ", acknowledged at least %" PRIu64 ": %s\n", run->name, committed, last,
           whole ? "all there" : "LOST");
    fflush(stdout);
    return whole;
}

/*
 * Two descriptors: of what our side can do, and of the memory. That a remote flush makes it durable is true
 * of persistent memory behind any device, and of the page cache behind the soft device, which are all that is
 * run.
 */
static uint8_t make_offer(const struct rpma_mr_local *mr, uint8_t offer[OFFER_MAX]) {
    struct rpma_peer_cfg *config = NULL;
    size_t config_size = 0;
    size_t mr_size = 0;
    CHECK(rpma_peer_cfg_new(&config));
    CHECK(rpma_peer_cfg_set_direct_write_to_pmem(config, true));
    CHECK(rpma_peer_cfg_get_descriptor_size(config, &config_size));
    CHECK(rpma_mr_get_descriptor_size(mr, &mr_size));
    REQUIRE(config_size + mr_size <= OFFER_MAX);
    CHECK(rpma_peer_cfg_get_descriptor(config, offer));
    CHECK(rpma_mr_get_descriptor(mr, offer + config_size));
    CHECK(rpma_peer_cfg_delete(&config));
    return (uint8_t)(config_size + mr_size);
}

static struct rpma_mr_remote *take_offer(struct rpma_conn *conn) {
    struct rpma_conn_private_data offer = {NULL, 0};
    struct rpma_peer_cfg *config = NULL;
    struct rpma_mr_remote *remote = NULL;
    size_t config_size = 0;
    CHECK(rpma_conn_get_private_data(conn, &offer));
    CHECK(rpma_peer_cfg_from_descriptor(offer.ptr, offer.len, &config));
    CHECK(rpma_peer_cfg_get_descriptor_size(config, &config_size));
    CHECK(rpma_conn_apply_remote_peer_cfg(conn, config));
    CHECK(rpma_mr_remote_from_descriptor((const char *)offer.ptr + config_size, offer.len - config_size,
                                         &remote));
    CHECK(rpma_peer_cfg_delete(&config));
    return remote;
}

/* Serves until the client has gone; the device does the writes and flushes. */
static void serve(const struct run *run, int port_fd) {
    struct rpma_peer *peer = new_peer(run->address);
    struct rpma_ep *ep = NULL;
    struct rpma_mr_local *mr = NULL;
    uint8_t offer[OFFER_MAX];
    char port[PORT_SIZE];
    find_port(run->address, port);
    CHECK(rpma_mr_reg(peer, run->ring, sizeof(struct ring),
                      RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT,
                      &mr));
    const struct rpma_conn_private_data data = {offer, make_offer(mr, offer)};
    CHECK(rpma_ep_listen(peer, run->address, port, &ep));
    REQUIRE(write(port_fd, port, sizeof(port)) == sizeof(port));
    serve_client(ep, &data);
    CHECK(rpma_ep_shutdown(&ep));
    CHECK(rpma_mr_dereg(&mr));
    CHECK(rpma_peer_delete(&peer));
}

static void flush(struct rpma_conn *conn, struct rpma_mr_remote *remote, size_t offset, size_t size) {
    CHECK(rpma_flush(conn, remote, offset, size, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, NULL));
    complete(conn);
}

static void push(const struct run *run, const char *port, uint64_t count) {
    struct rpma_peer *peer = new_peer(run->address);
    struct record *const record = malloc(sizeof(*record));
    struct rpma_mr_local *mr = NULL;
    REQUIRE(record != NULL);
    CHECK(rpma_mr_reg(peer, record, sizeof(*record), RPMA_MR_USAGE_WRITE_SRC, &mr));
    struct rpma_conn *const conn = connect_to(peer, run->address, port);
    struct rpma_mr_remote *remote = take_offer(conn);

    const uint64_t committed = run->ring->committed;
    for (uint64_t number = committed + 1; number <= committed + count; ++number) {
        const size_t place = offsetof(struct ring, slot) + number % SLOTS * sizeof(*record);
        char line[64];
        make_record(record, number, run->seed);
        CHECK(rpma_write(conn, remote, place, mr, 0, sizeof(*record), RPMA_F_COMPLETION_ON_ERROR, NULL));
        flush(conn, remote, place, sizeof(*record));
        CHECK(rpma_atomic_write(conn, remote, offsetof(struct ring, committed), (const char *)&number,
                                RPMA_F_COMPLETION_ON_ERROR, NULL));
        flush(conn, remote, offsetof(struct ring, committed), sizeof(number));
        const int size = snprintf(line, sizeof(line), "%s %" PRIu64 "\n", run->name, number);
        REQUIRE(write(STDOUT_FILENO, line, (size_t)size) == size);
    }
    disconnect(conn);
    CHECK(rpma_mr_remote_delete(&remote));
    CHECK(rpma_mr_dereg(&mr));
    CHECK(rpma_peer_delete(&peer));
    free(record);
}

int main(int argc, char *argv[]) {
    int port_pipe[2];
    char port[PORT_SIZE];
    int status = -1;
    const bool is_dax = argc > 3 && strcmp(argv[3], "dax") == 0;
    if (argc < 8 || argc > 9 || (!is_dax && strcmp(argv[3], "pages") != 0)) {
        fprintf(stderr, "usage: %s NAME ADDRESS dax|pages FILE OFFSET SEED LAST [COUNT]\n", argv[0]);
        return 2;
    }
    const struct run run = {.name = argv[1],
                            .address = argv[2],
                            .ring = map_ring(argv[4], (off_t)strtoll(argv[5], NULL, 10), is_dax),
                            .seed = strtoull(argv[6], NULL, 10)};
    /* There is no time for so many records. */
    const uint64_t count = argc == 9 ? strtoull(argv[8], NULL, 10) : UINT32_MAX;
    if (!is_whole(&run, strtoull(argv[7], NULL, 10))) {
        return EXIT_FAILURE;
    }
    if (count == 0) {
        return EXIT_SUCCESS;
    }
    REQUIRE(pipe(port_pipe) == 0);
    const pid_t server = fork();
    REQUIRE(server >= 0);
    if (server == 0) {
        close(port_pipe[0]);
        serve(&run, port_pipe[1]);
        return EXIT_SUCCESS;
    }
    close(port_pipe[1]);
    REQUIRE(read(port_pipe[0], port, sizeof(port)) == sizeof(port));
    push(&run, port, count);
    REQUIRE(waitpid(server, &status, 0) == server);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    return EXIT_SUCCESS;
}
