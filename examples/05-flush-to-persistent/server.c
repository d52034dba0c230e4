/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 05-flush-to-persistent, server: lets a client write into a mapped file and make durable what it wrote. The
 * server has no part in either; it could be asleep.
 *
 *     server ADDR PORT PMEM-PATH
 *
 * PMEM-PATH is a file on persistent memory or, with the soft device, on any disk (not tmpfs: that is never
 * durable). It is created when it is not there.
 */
#define _GNU_SOURCE /* MAP_SYNC */
#include <errno.h>
#include <fcntl.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_SIZE 4096

/* What the server tells a client in its private data. Bytes only, so that it is the same on every machine. */
struct offer {
    uint8_t region_size;
    uint8_t peer_config_size;
    uint8_t region[30];      /* descriptor of the memory */
    uint8_t peer_config[16]; /* descriptor of what the server can do */
};

/* The page that both agree on: the number of the last committed line, and two lines that take turns. */
struct record {
    uint64_t committed;
    char line[2][64];
};

/* Says on standard error what failed and why. True when it did. */
static bool failed(const char *what, int ret) {
    if (ret != 0) {
        fprintf(stderr, "server: %s: %s\n", what, rpma_err_2str(ret));
    }
    return ret != 0;
}

/* Blocks until the next event of the connection. True when it is not the expected one. */
static bool other_event(struct rpma_conn *conn, enum rpma_conn_event expected) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    if (failed("rpma_conn_next_event", rpma_conn_next_event(conn, &event))) {
        return true;
    }
    if (event != expected) {
        fprintf(stderr, "server: %s (expected: %s)\n", rpma_utils_conn_event_2str(event),
                rpma_utils_conn_event_2str(expected));
    }
    return event != expected;
}

/* Opens or creates the file and maps its first page. NULL, and a message, when that does not work. */
static char *map_file(const char *path, bool *is_dax) {
    char *memory = MAP_FAILED;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    /* The space is allocated now: a full disk is an error here, instead of a signal in the middle of a write.
     */
    const int error = fd < 0 ? errno : posix_fallocate(fd, 0, PAGE_SIZE);
    if (error == 0) {
        /* On persistent memory with DAX the page is the medium itself. Elsewhere it is one of the page cache.
         */
        memory = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
        *is_dax = memory != MAP_FAILED;
        if (!*is_dax) {
            memory = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        }
    }
    if (memory == MAP_FAILED) {
        fprintf(stderr, "server: %s: %s\n", path, strerror(error != 0 ? error : errno));
    }
    /* The mapping keeps the file. */
    if (fd >= 0) {
        close(fd);
    }
    return memory != MAP_FAILED ? memory : NULL;
}

/*
 * Whether the data of a remote flush are durable here. Persistent memory (DAX) is on every device that writes
 * to memory past the processor's caches. A page of the page cache must be written to the disk by somebody:
 * the soft device does it (its devices are called soft_...), RDMA hardware cannot.
 */
static bool is_flush_durable(const struct ibv_context *context, bool is_dax) {
    return is_dax || strncmp(context->device->name, "soft_", strlen("soft_")) == 0;
}

/* Fills in where the memory is, the key to it, and that a flush may be relied on. True when that does not
 * work. */
static bool cannot_offer(struct rpma_mr_local *mr, bool durable, struct offer *offer) {
    struct rpma_peer_cfg *config = NULL;
    size_t region_size = 0;
    size_t config_size = 0;
    bool bad =
        failed("rpma_mr_get_descriptor_size", rpma_mr_get_descriptor_size(mr, &region_size)) ||
        failed("rpma_peer_cfg_new", rpma_peer_cfg_new(&config)) ||
        failed("rpma_peer_cfg_set_direct_write_to_pmem",
               rpma_peer_cfg_set_direct_write_to_pmem(config, durable)) ||
        failed("rpma_peer_cfg_get_descriptor_size", rpma_peer_cfg_get_descriptor_size(config, &config_size));
    if (!bad && (region_size > sizeof(offer->region) || config_size > sizeof(offer->peer_config))) {
        fprintf(stderr, "server: descriptors of %zu and %zu bytes (expected: at most %zu and %zu)\n",
                region_size, config_size, sizeof(offer->region), sizeof(offer->peer_config));
        bad = true;
    }
    if (!bad) {
        offer->region_size = (uint8_t)region_size;
        offer->peer_config_size = (uint8_t)config_size;
        bad =
            failed("rpma_mr_get_descriptor", rpma_mr_get_descriptor(mr, offer->region)) ||
            failed("rpma_peer_cfg_get_descriptor", rpma_peer_cfg_get_descriptor(config, offer->peer_config));
    }
    return failed("rpma_peer_cfg_delete", rpma_peer_cfg_delete(&config)) || bad;
}

static void show(const char *what, const struct record *record) {
    const char *line = record->line[record->committed % 2];
    printf("%s: line %llu, \"%.*s\"\n", what, (unsigned long long)record->committed,
           (int)sizeof(record->line[0]), line);
}

int main(int argc, char *argv[]) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s ADDR PORT PMEM-PATH\n", argv[0]);
        return EXIT_FAILURE;
    }
    const char *addr = argv[1];
    const char *port = argv[2];
    const char *path = argv[3];
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_ep *endpoint = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    bool ok = false;

    /* The library's log tells which memory it refused and why: let it, on standard error. */
    if (failed("rpma_log_set_threshold",
               rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING))) {
        return EXIT_FAILURE;
    }
    bool is_dax = false;
    char *memory = map_file(path, &is_dax);
    if (memory == NULL) {
        return EXIT_FAILURE;
    }
    show("found in the file", (const struct record *)memory);

    if (failed("rpma_utils_get_ibv_context",
               rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) ||
        failed("rpma_peer_new", rpma_peer_new(context, &peer))) {
        goto out;
    }

    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_READ_SRC;
    if (failed("rpma_mr_reg", rpma_mr_reg(peer, memory, PAGE_SIZE, usage, &mr))) {
        fprintf(stderr,
                "server: %s cannot be made durable (expected: a file on a disk or on persistent memory, not "
                "on tmpfs)\n",
                path);
        goto out;
    }
    struct offer offer = {0};
    if (cannot_offer(mr, is_flush_durable(context, is_dax), &offer) ||
        failed("rpma_ep_listen", rpma_ep_listen(peer, addr, port, &endpoint))) {
        goto out;
    }
    printf("listening on %s, port %s\n", addr, port);
    fflush(stdout);

    struct rpma_conn_private_data ours = {.ptr = &offer, .len = sizeof(offer)};
    if (failed("rpma_ep_next_conn_req", rpma_ep_next_conn_req(endpoint, NULL, &request)) ||
        failed("rpma_conn_req_connect", rpma_conn_req_connect(&request, &ours, &conn)) ||
        other_event(conn, RPMA_CONN_ESTABLISHED)) {
        goto out;
    }
    printf("connected; the client may write and flush now\n");
    if (other_event(conn, RPMA_CONN_CLOSED) || failed("rpma_conn_disconnect", rpma_conn_disconnect(conn))) {
        goto out;
    }
    show("the client has left", (const struct record *)memory);
    ok = true;

out:
    /* In the order opposite to making them. Deleting what was never made does nothing. */
    ok = !failed("rpma_conn_delete", rpma_conn_delete(&conn)) && ok;
    ok = !failed("rpma_conn_req_delete", rpma_conn_req_delete(&request)) && ok;
    ok = !failed("rpma_ep_shutdown", rpma_ep_shutdown(&endpoint)) && ok;
    ok = !failed("rpma_mr_dereg", rpma_mr_dereg(&mr)) && ok;
    ok = !failed("rpma_peer_delete", rpma_peer_delete(&peer)) && ok;
    munmap(memory, PAGE_SIZE);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
