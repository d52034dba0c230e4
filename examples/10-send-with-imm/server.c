/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 10-send-with-imm, server: receives messages with immediate data, until one says that it is the last.
 *
 *     server ADDR PORT
 */
#include <arpa/inet.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_SIZE 64

/* The programs decide the meaning of the immediate data. Here it is the kind of the message. */
enum { KIND_TEXT = 0x54455854, KIND_END = 0x454e4421 };

static char texts[2][TEXT_SIZE];

/* True when the call succeeded. Otherwise prints the call and the reason. */
#define OK(call) worked(#call, call)
static bool worked(const char *call, int ret) {
    if (ret != 0) {
        fprintf(stderr, "server: %s: %s\n", call, rpma_err_2str(ret));
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
        fprintf(stderr, "server: %s (expected: %s)\n", rpma_utils_conn_event_2str(event),
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
        fprintf(stderr, "server: an operation failed: status %d of enum ibv_wc_status\n", (int)wc->status);
    }
    return wc->status == IBV_WC_SUCCESS;
}

/* Waits for a message of the expected kind. */
static bool received(struct rpma_cq *cq, uint32_t expected, uint32_t *size) {
    struct ibv_wc wc = {0};
    if (!completed(cq, &wc)) {
        return false;
    }
    /* The flags tell whether there is an immediate. Only here it is in network order. */
    const bool has_imm = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
    const uint32_t kind = has_imm ? ntohl(wc.imm_data) : 0;
    if (kind != expected) {
        fprintf(stderr, "server: a message of kind 0x%x (expected: 0x%x)\n", kind, expected);
        return false;
    }
    *size = wc.byte_len;
    return true;
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_ep *endpoint = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_cq *cq = NULL;

    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, texts, sizeof(texts), RPMA_MR_USAGE_RECV, &mr)) &&
              OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    /* There is a receive for each message that may come, as for messages without an immediate. */
    uint32_t size = 0;
    ok = ok && OK(rpma_ep_next_conn_req(endpoint, NULL, &request)) &&
         OK(rpma_conn_req_recv(request, mr, 0, TEXT_SIZE, NULL)) &&
         OK(rpma_conn_req_recv(request, mr, TEXT_SIZE, TEXT_SIZE, NULL)) &&
         OK(rpma_conn_req_connect(&request, NULL, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
         OK(rpma_conn_get_cq(conn, &cq)) && received(cq, KIND_TEXT, &size);
    if (ok) {
        printf("a text of %u bytes: %.*s\n", size, (int)size, texts[0]);
    }
    ok = ok && received(cq, KIND_END, &size);
    if (ok) {
        printf("the end, with %u bytes\n", size);
    }

    /* Both sides get an event when the connection is closed. */
    ok = ok && OK(rpma_conn_disconnect(conn)) && happened(conn, RPMA_CONN_CLOSED);
    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_ep_shutdown(&endpoint)) && ok;
    ok = OK(rpma_mr_dereg(&mr)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
