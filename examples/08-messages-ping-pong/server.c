/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 08-messages-ping-pong, server: answers every message, a number, with the number after it.
 *
 *     server ADDR PORT
 */
#include <librpma.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One message each way. Both ends have the same byte order. */
static struct messages {
    uint64_t in;
    uint64_t out;
} messages;
#define IN offsetof(struct messages, in)
#define OUT offsetof(struct messages, out)

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

/* Waits for a message, and until the previous answer has left, so that `out` may be used again. */
static bool message_came(struct rpma_cq *cq, bool is_first) {
    bool sent = is_first;
    bool received = false;
    while (!sent || !received) {
        struct ibv_wc wc;
        if (!completed(cq, &wc)) {
            return false;
        }
        if (wc.opcode == IBV_WC_RECV && wc.byte_len != sizeof(messages.in)) {
            fprintf(stderr, "server: a message of %u bytes (expected: %zu)\n", wc.byte_len,
                    sizeof(messages.in));
            return false;
        }
        sent = sent || wc.opcode == IBV_WC_SEND;
        received = received || wc.opcode == IBV_WC_RECV;
    }
    return true;
}

/* Answers this many messages; the receive of the first is already posted. */
static bool answered(struct rpma_conn *conn, struct rpma_mr_local *mr, uint32_t rounds) {
    struct rpma_cq *cq = NULL;
    bool ok = OK(rpma_conn_get_cq(conn, &cq));
    for (uint32_t round = 0; ok && round < rounds; round++) {
        ok = message_came(cq, round == 0);
        messages.out = messages.in + 1;
        /* The next receive is posted before the answer that lets the client send again. */
        ok = ok && OK(rpma_recv(conn, mr, IN, sizeof(messages.in), NULL)) &&
             OK(rpma_send(conn, mr, OUT, sizeof(messages.out), RPMA_F_COMPLETION_ALWAYS, NULL));
    }
    return ok;
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

    const int usage = RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, &messages, sizeof(messages), usage, &mr)) &&
              OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    /* The client's request says how many rounds it wants. */
    struct rpma_conn_private_data theirs = {0};
    uint32_t rounds = 0;
    ok = ok && OK(rpma_ep_next_conn_req(endpoint, NULL, &request)) &&
         OK(rpma_conn_req_get_private_data(request, &theirs));
    if (ok && theirs.len < sizeof(rounds)) {
        fprintf(stderr, "server: the client sent %u bytes (expected: %zu)\n", (unsigned)theirs.len,
                sizeof(rounds));
        ok = false;
    }
    if (ok) {
        memcpy(&rounds, theirs.ptr, sizeof(rounds));
    }

    /* A message needs a posted receive, so the first is posted before the client can send.  */
    ok = ok && OK(rpma_conn_req_recv(request, mr, IN, sizeof(messages.in), NULL)) &&
         OK(rpma_conn_req_connect(&request, NULL, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
         answered(conn, mr, rounds) && happened(conn, RPMA_CONN_CLOSED) && OK(rpma_conn_disconnect(conn));
    if (ok) {
        printf("answered %u messages; the client has left\n", rounds);
    }

    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_ep_shutdown(&endpoint)) && ok;
    ok = OK(rpma_mr_dereg(&mr)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
