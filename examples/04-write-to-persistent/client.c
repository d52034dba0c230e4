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

/* The first page is written from, the second is where the bytes come back. */
static _Alignas(PAGE_SIZE) char memory[2][PAGE_SIZE];

/* True when the call succeeded. Otherwise prints the call and the reason. */
#define OK(call) worked(#call, call)
static bool worked(const char *call, int ret) {
    if (ret != 0) {
        fprintf(stderr, "client: %s: %s\n", call, rpma_err_2str(ret));
    }
    return ret == 0;
}

/* Waits for the next event of the connection. True when it is the expected one. */
static bool happened(struct rpma_conn *conn, enum rpma_conn_event expected) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    if (!OK(rpma_conn_next_event(conn, &event))) {
        return false;
    }
    if (event != expected) {
        fprintf(stderr, "client: %s (expected: %s)\n", rpma_utils_conn_event_2str(event),
                rpma_utils_conn_event_2str(expected));
    }
    return event == expected;
}

/* Waits for the next completion of the queue. True when it came and its operation succeeded. */
static bool completed(struct rpma_cq *cq, struct ibv_wc *wc) {
    int ret = rpma_cq_get_wc(cq, 1, wc, NULL);
    /* A wait may end without a completion, so this is a loop. */
    while (ret == RPMA_E_NO_COMPLETION) {
        if (!OK(rpma_cq_wait(cq))) {
            return false;
        }
        ret = rpma_cq_get_wc(cq, 1, wc, NULL);
    }
    if (!worked("rpma_cq_get_wc", ret)) {
        return false;
    }
    if (wc->status != IBV_WC_SUCCESS) {
        fprintf(stderr, "client: an operation failed: status %d of enum ibv_wc_status\n", (int)wc->status);
    }
    return wc->status == IBV_WC_SUCCESS;
}

/* Makes a remote region of the descriptor in the server's private data. The region must have `size` bytes. */
static bool understood(struct rpma_conn *conn, size_t size, struct rpma_mr_remote **remote) {
    struct rpma_conn_private_data theirs = {0};
    size_t offered = 0;
    if (!OK(rpma_conn_get_private_data(conn, &theirs)) ||
        !OK(rpma_mr_remote_from_descriptor(theirs.ptr, theirs.len, remote)) ||
        !OK(rpma_mr_remote_get_size(*remote, &offered))) {
        return false;
    }
    if (offered < size) {
        fprintf(stderr, "client: the server offers %zu bytes (expected: at least %zu)\n", offered, size);
    }
    return offered >= size;
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *local = NULL;
    struct rpma_mr_remote *remote = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_cq *cq = NULL;
    snprintf(memory[0], PAGE_SIZE, "written by the client at %lld s", (long long)time(NULL));

    const int usage = RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST;
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, memory, sizeof(memory), usage, &local)) &&
              OK(rpma_conn_req_new(peer, argv[1], argv[2], NULL, &request)) &&
              OK(rpma_conn_req_connect(&request, NULL, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
              OK(rpma_conn_get_cq(conn, &cq)) && understood(conn, PAGE_SIZE, &remote);

    /*
     * The completion of a write says that its source may be used again, and nothing about the target. So the
     * client does not wait for it (it is reported only if it fails), but for the flush after it. When that is
     * done, the bytes are in the server's memory, where its programs and all later reads see them.
     */
    struct ibv_wc wc;
    ok = ok && OK(rpma_write(conn, remote, 0, local, 0, PAGE_SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL)) &&
         OK(rpma_flush(conn, remote, 0, PAGE_SIZE, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
                       NULL)) &&
         completed(cq, &wc) &&
         OK(rpma_read(conn, local, PAGE_SIZE, remote, 0, PAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, NULL)) &&
         completed(cq, &wc);
    if (ok && memcmp(memory[0], memory[1], PAGE_SIZE) != 0) {
        fprintf(stderr, "client: what was read back is not what was written\n");
        ok = false;
    }
    if (ok) {
        printf("in the server's memory: %s\n", memory[1]);
    }

    /* Both sides get an event when the connection is closed. */
    ok = ok && OK(rpma_conn_disconnect(conn)) && happened(conn, RPMA_CONN_CLOSED);
    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_mr_remote_delete(&remote)) && ok;
    ok = OK(rpma_mr_dereg(&local)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
