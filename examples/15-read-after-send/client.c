/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 15-read-after-send, client: sends messages into a file of the server, and knows when each is durable
 * without an answer from the server's program.
 *
 *     client ADDR PORT
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MESSAGES 3
#define MESSAGE_SIZE 64

static char message[MESSAGE_SIZE];

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

/*
 * The server's private data are two descriptors. The first is the server's configuration, which the
 * connection gets. The second is its memory, which must have `size` bytes and becomes a remote region.
 */
static bool understood(struct rpma_conn *conn, size_t size, struct rpma_mr_remote **remote) {
    struct rpma_conn_private_data theirs = {0};
    struct rpma_peer_cfg *config = NULL;
    size_t config_size = 0;
    size_t offered = 0;
    bool ok = OK(rpma_conn_get_private_data(conn, &theirs)) &&
              OK(rpma_peer_cfg_from_descriptor(theirs.ptr, theirs.len, &config)) &&
              OK(rpma_peer_cfg_get_descriptor_size(config, &config_size)) &&
              OK(rpma_conn_apply_remote_peer_cfg(conn, config)) &&
              OK(rpma_mr_remote_from_descriptor((const char *)theirs.ptr + config_size,
                                                theirs.len - config_size, remote)) &&
              OK(rpma_mr_remote_get_size(*remote, &offered));
    if (ok && offered < size) {
        fprintf(stderr, "client: the server offers %zu bytes (expected: at least %zu)\n", offered, size);
        ok = false;
    }
    return OK(rpma_peer_cfg_delete(&config)) && ok;
}

/*
 * Sends a message, and behind it a flush of the place where it goes: the server's device takes them in this
 * order, and where it has no flush of its own this is a read, which does not overtake a send. When the flush
 * is complete the message is durable.
 */
static bool sent(struct rpma_conn *conn, struct rpma_cq *cq, struct rpma_mr_local *local,
                 struct rpma_mr_remote *remote, int place) {
    struct ibv_wc wc;
    memset(message, 0, sizeof(message));
    snprintf(message, sizeof(message), "message %d, sent at %lld s", place, (long long)time(NULL));
    return OK(rpma_send(conn, local, 0, MESSAGE_SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL)) &&
           OK(rpma_flush(conn, remote, (size_t)place * MESSAGE_SIZE, MESSAGE_SIZE, RPMA_FLUSH_TYPE_PERSISTENT,
                         RPMA_F_COMPLETION_ALWAYS, NULL)) &&
           completed(cq, &wc);
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

    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, message, sizeof(message), RPMA_MR_USAGE_SEND, &local)) &&
              OK(rpma_conn_req_new(peer, argv[1], argv[2], NULL, &request)) &&
              OK(rpma_conn_req_connect(&request, NULL, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
              OK(rpma_conn_get_cq(conn, &cq)) && understood(conn, MESSAGES * MESSAGE_SIZE, &remote);

    for (int place = 0; ok && place < MESSAGES; place++) {
        ok = sent(conn, cq, local, remote, place);
        if (ok) {
            printf("durable on the server: %s\n", message);
        }
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
