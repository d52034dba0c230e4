/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 05-flush-to-persistent, client: replaces a line in the server's file so that, whatever happens and
 * whenever, the file has the old line or the new one; and knows that the new one is durable before it says
 * so.
 *
 *     client ADDR PORT
 */
#include <librpma.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
        fprintf(stderr, "client: %s: %s\n", what, rpma_err_2str(ret));
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
        fprintf(stderr, "client: %s (expected: %s)\n", rpma_utils_conn_event_2str(event),
                rpma_utils_conn_event_2str(expected));
    }
    return event != expected;
}

/* Takes over what the server can do, and makes of its descriptor what read and write take. True when it
 * cannot. */
static bool no_offer(struct rpma_conn *conn, struct rpma_mr_remote **remote) {
    struct rpma_conn_private_data theirs = {0};
    struct rpma_peer_cfg *config = NULL;
    struct offer offer;
    size_t size = 0;
    if (failed("rpma_conn_get_private_data", rpma_conn_get_private_data(conn, &theirs))) {
        return true;
    }
    /* A peer may send anything: nothing is used before it is checked. Longer is possible, by padding. */
    if (theirs.len < sizeof(offer)) {
        fprintf(stderr, "client: the server sent %u bytes (expected: %zu)\n", (unsigned)theirs.len,
                sizeof(offer));
        return true;
    }
    memcpy(&offer, theirs.ptr, sizeof(offer));
    if (offer.region_size > sizeof(offer.region) || offer.peer_config_size > sizeof(offer.peer_config)) {
        fprintf(stderr, "client: descriptors of %u and %u bytes (expected: at most %zu and %zu)\n",
                (unsigned)offer.region_size, (unsigned)offer.peer_config_size, sizeof(offer.region),
                sizeof(offer.peer_config));
        return true;
    }
    bool bad = failed("rpma_peer_cfg_from_descriptor",
                      rpma_peer_cfg_from_descriptor(offer.peer_config, offer.peer_config_size, &config)) ||
               failed("rpma_conn_apply_remote_peer_cfg", rpma_conn_apply_remote_peer_cfg(conn, config)) ||
               failed("rpma_mr_remote_from_descriptor",
                      rpma_mr_remote_from_descriptor(offer.region, offer.region_size, remote)) ||
               failed("rpma_mr_remote_get_size", rpma_mr_remote_get_size(*remote, &size));
    if (!bad && size < sizeof(struct record)) {
        fprintf(stderr, "client: the server offers %zu bytes (expected: at least %zu)\n", size,
                sizeof(struct record));
        bad = true;
    }
    return failed("rpma_peer_cfg_delete", rpma_peer_cfg_delete(&config)) || bad;
}

/* Blocks until the operation with this context is done. True when it failed, or another one did. */
static bool unfinished(struct rpma_conn *conn, const void *op_context) {
    struct rpma_cq *cq = NULL;
    struct ibv_wc wc = {0};
    if (failed("rpma_conn_get_cq", rpma_conn_get_cq(conn, &cq))) {
        return true;
    }
    /* Waking up is no promise that there is a completion. */
    int ret = RPMA_E_NO_COMPLETION;
    while (ret == RPMA_E_NO_COMPLETION) {
        if (failed("rpma_cq_wait", rpma_cq_wait(cq))) {
            return true;
        }
        ret = rpma_cq_get_wc(cq, 1, &wc, NULL);
    }
    if (failed("rpma_cq_get_wc", ret)) {
        return true;
    }
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id != (uintptr_t)op_context) {
        fprintf(stderr, "client: an operation failed: status %d of enum ibv_wc_status\n", (int)wc.status);
        return true;
    }
    return false;
}

/* Reads the whole record. True when that failed. */
static bool cannot_read(struct rpma_conn *conn, struct rpma_mr_local *local,
                        const struct rpma_mr_remote *remote) {
    const void *read = "the read";
    return failed("rpma_read", rpma_read(conn, local, 0, remote, 0, sizeof(struct record),
                                         RPMA_F_COMPLETION_ALWAYS, read)) ||
           unfinished(conn, read);
}

/* Writes the line of this number and then commits it. True when either failed, and then nothing is committed.
 */
static bool cannot_commit(struct rpma_conn *conn, struct rpma_mr_local *local, struct rpma_mr_remote *remote,
                          uint64_t number) {
    const size_t line = offsetof(struct record, line) + (number % 2) * sizeof(((struct record *)0)->line[0]);
    const size_t size = sizeof(((struct record *)0)->line[0]);
    const size_t committed = offsetof(struct record, committed);
    char word[8];
    memcpy(word, &number, sizeof(word));
    /*
     * Four operations on their way at once, and one answer to wait for. The server's device takes them in
     * this order: the line is durable before the number that commits it changes, all its 8 bytes at once, and
     * the number is durable before the last flush is answered.
     */
    const void *last = "the last flush";
    return failed("rpma_write", rpma_write(conn, remote, line, local, line, size, RPMA_F_COMPLETION_ON_ERROR,
                                           "the line")) ||
           failed("rpma_flush", rpma_flush(conn, remote, line, size, RPMA_FLUSH_TYPE_PERSISTENT,
                                           RPMA_F_COMPLETION_ON_ERROR, "the line's flush")) ||
           failed("rpma_atomic_write", rpma_atomic_write(conn, remote, committed, word,
                                                         RPMA_F_COMPLETION_ON_ERROR, "the number")) ||
           failed("rpma_flush", rpma_flush(conn, remote, committed, sizeof(word), RPMA_FLUSH_TYPE_PERSISTENT,
                                           RPMA_F_COMPLETION_ALWAYS, last)) ||
           unfinished(conn, last);
}

/* The client's work on an open connection. True when it is done and the server's memory shows it. */
static bool replace_line(struct rpma_conn *conn, struct rpma_mr_local *local, struct record *record,
                         struct rpma_mr_remote *remote) {
    if (cannot_read(conn, local, remote)) {
        return false;
    }
    const uint64_t number = record->committed + 1;
    char line[sizeof(record->line[0])] = {0};
    snprintf(line, sizeof(line), "written by the client at %lld s", (long long)time(NULL));
    memcpy(record->line[number % 2], line, sizeof(line));
    if (cannot_commit(conn, local, remote, number)) {
        return false;
    }
    printf("durable on the server: line %llu, \"%s\"\n", (unsigned long long)number, line);

    memset(record, 0, sizeof(*record));
    if (cannot_read(conn, local, remote)) {
        return false;
    }
    if (record->committed != number || memcmp(record->line[number % 2], line, sizeof(line)) != 0) {
        fprintf(stderr, "client: what was read back is not what was written\n");
        return false;
    }
    return true;
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    const char *addr = argv[1];
    const char *port = argv[2];
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *local = NULL;
    struct rpma_mr_remote *remote = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    bool ok = false;

    struct record *memory = aligned_alloc(PAGE_SIZE, PAGE_SIZE);
    if (memory == NULL) {
        fprintf(stderr, "client: no memory\n");
        return EXIT_FAILURE;
    }
    memset(memory, 0, PAGE_SIZE);

    const int usage = RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST;
    if (failed("rpma_utils_get_ibv_context",
               rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) ||
        failed("rpma_peer_new", rpma_peer_new(context, &peer)) ||
        failed("rpma_mr_reg", rpma_mr_reg(peer, memory, PAGE_SIZE, usage, &local)) ||
        failed("rpma_conn_req_new", rpma_conn_req_new(peer, addr, port, NULL, &request)) ||
        failed("rpma_conn_req_connect", rpma_conn_req_connect(&request, NULL, &conn)) ||
        other_event(conn, RPMA_CONN_ESTABLISHED)) {
        goto out;
    }

    /* A server that did not declare direct write to persistent memory makes the flush end with "Not
     * supported". */
    ok = !no_offer(conn, &remote) && replace_line(conn, local, memory, remote);

    /* Whoever disconnects is told, as its peer is, when the connection is closed. */
    ok = !failed("rpma_conn_disconnect", rpma_conn_disconnect(conn)) && ok;
    ok = ok && !other_event(conn, RPMA_CONN_CLOSED);

out:
    /* In the order opposite to making them. Deleting what was never made does nothing. */
    ok = !failed("rpma_conn_delete", rpma_conn_delete(&conn)) && ok;
    ok = !failed("rpma_conn_req_delete", rpma_conn_req_delete(&request)) && ok;
    ok = !failed("rpma_mr_remote_delete", rpma_mr_remote_delete(&remote)) && ok;
    ok = !failed("rpma_mr_dereg", rpma_mr_dereg(&local)) && ok;
    ok = !failed("rpma_peer_delete", rpma_peer_delete(&peer)) && ok;
    free(memory);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
