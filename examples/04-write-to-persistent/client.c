/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 04-write-to-persistent, client: writes a line into the server's memory, makes sure that it has arrived, and
 * reads it back to see.
 *
 *     client ADDR PORT
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE_SIZE 4096

/* What the server tells a client in its private data. Bytes only, so that it is the same on every machine. */
struct offer {
    uint8_t descriptor_size;
    uint8_t descriptor[31];
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

/* Makes of the server's private data what read and write take. True when that does not work. */
static bool no_offer(struct rpma_conn *conn, struct rpma_mr_remote **remote) {
    struct rpma_conn_private_data theirs = {0};
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
    if (offer.descriptor_size > sizeof(offer.descriptor)) {
        fprintf(stderr, "client: a descriptor of %u bytes (expected: at most %zu)\n",
                (unsigned)offer.descriptor_size, sizeof(offer.descriptor));
        return true;
    }
    if (failed("rpma_mr_remote_from_descriptor",
               rpma_mr_remote_from_descriptor(offer.descriptor, offer.descriptor_size, remote)) ||
        failed("rpma_mr_remote_get_size", rpma_mr_remote_get_size(*remote, &size))) {
        return true;
    }
    if (size < PAGE_SIZE) {
        fprintf(stderr, "client: the server offers %zu bytes (expected: at least %d)\n", size, PAGE_SIZE);
        return true;
    }
    return false;
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

/* Writes the page, flushes it, and reads it back to `copy_offset`. True when any of it failed. */
static bool cannot_write(struct rpma_conn *conn, struct rpma_mr_local *local, size_t copy_offset,
                         struct rpma_mr_remote *remote) {
    /*
     * The completion of a write says that its source may be used again, and nothing about the target. So
     * nobody waits for it (it is reported only if it fails), but for the flush behind it: when that is done,
     * the bytes are in the server's memory, where its programs and all later reads see them.
     */
    const void *flush = "the flush";
    const void *read = "the read";
    return failed("rpma_write", rpma_write(conn, remote, 0, local, 0, PAGE_SIZE, RPMA_F_COMPLETION_ON_ERROR,
                                           "the write")) ||
           failed("rpma_flush", rpma_flush(conn, remote, 0, PAGE_SIZE, RPMA_FLUSH_TYPE_VISIBILITY,
                                           RPMA_F_COMPLETION_ALWAYS, flush)) ||
           unfinished(conn, flush) ||
           failed("rpma_read", rpma_read(conn, local, copy_offset, remote, 0, PAGE_SIZE,
                                         RPMA_F_COMPLETION_ALWAYS, read)) ||
           unfinished(conn, read);
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

    /* The first page is written from, the second is where the bytes come back. */
    char *memory = aligned_alloc(PAGE_SIZE, 2 * PAGE_SIZE);
    if (memory == NULL) {
        fprintf(stderr, "client: no memory\n");
        return EXIT_FAILURE;
    }
    memset(memory, 0, 2 * PAGE_SIZE);
    snprintf(memory, PAGE_SIZE, "written by the client at %lld s", (long long)time(NULL));

    const int usage = RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST;
    if (failed("rpma_utils_get_ibv_context",
               rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) ||
        failed("rpma_peer_new", rpma_peer_new(context, &peer)) ||
        failed("rpma_mr_reg", rpma_mr_reg(peer, memory, 2 * PAGE_SIZE, usage, &local)) ||
        failed("rpma_conn_req_new", rpma_conn_req_new(peer, addr, port, NULL, &request)) ||
        failed("rpma_conn_req_connect", rpma_conn_req_connect(&request, NULL, &conn)) ||
        other_event(conn, RPMA_CONN_ESTABLISHED)) {
        goto out;
    }

    ok = !no_offer(conn, &remote) && !cannot_write(conn, local, PAGE_SIZE, remote);
    if (ok && memcmp(memory, memory + PAGE_SIZE, PAGE_SIZE) != 0) {
        fprintf(stderr, "client: what was read back is not what was written\n");
        ok = false;
    }
    if (ok) {
        printf("in the server's memory: %s\n", memory + PAGE_SIZE);
    }

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
