/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 02-read-to-volatile, client: reads a page of the server's memory into its own and checks what it got.
 *
 *     client ADDR PORT
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_SIZE 4096

static const char expected_text[] = "These bytes were read out of the server's memory.";

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

    char *memory = aligned_alloc(PAGE_SIZE, PAGE_SIZE);
    if (memory == NULL) {
        fprintf(stderr, "client: no memory\n");
        return EXIT_FAILURE;
    }
    memset(memory, 0, PAGE_SIZE);

    /* Where the bytes are to go has to be registered too, on this side as the destination of reads. */
    if (failed("rpma_utils_get_ibv_context",
               rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) ||
        failed("rpma_peer_new", rpma_peer_new(context, &peer)) ||
        failed("rpma_mr_reg", rpma_mr_reg(peer, memory, PAGE_SIZE, RPMA_MR_USAGE_READ_DST, &local)) ||
        failed("rpma_conn_req_new", rpma_conn_req_new(peer, addr, port, NULL, &request)) ||
        failed("rpma_conn_req_connect", rpma_conn_req_connect(&request, NULL, &conn)) ||
        other_event(conn, RPMA_CONN_ESTABLISHED)) {
        goto out;
    }

    /* Posting returns at once. The bytes are here when the completion is: its op_context says of which
     * operation. */
    const void *op_context = "the read";
    ok = !no_offer(conn, &remote) &&
         !failed("rpma_read",
                 rpma_read(conn, local, 0, remote, 0, PAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, op_context)) &&
         !unfinished(conn, op_context);
    if (ok && memcmp(memory, expected_text, sizeof(expected_text)) != 0) {
        fprintf(stderr, "client: read something else than \"%s\"\n", expected_text);
        ok = false;
    }
    if (ok) {
        printf("read: %s\n", memory);
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
