/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 08-messages-ping-pong, client: sends a number, gets the number after it, sends that, and so on.
 *
 *     client ADDR PORT [ROUNDS]
 */
#include <inttypes.h>
#include <librpma.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS_MAX 100000000

/* One message each way. Both ends have the same byte order. */
static struct messages {
    uint64_t out;
    uint64_t in;
} messages;

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

/* Sends one message and receives one. Their completions may come in any order. */
static bool exchanged(struct rpma_conn *conn, struct rpma_cq *cq, struct rpma_mr_local *mr) {
    /* The receive of the answer is posted before the message that it answers. */
    if (!OK(rpma_recv(conn, mr, offsetof(struct messages, in), sizeof(messages.in), NULL)) ||
        !OK(rpma_send(conn, mr, offsetof(struct messages, out), sizeof(messages.out),
                      RPMA_F_COMPLETION_ALWAYS, NULL))) {
        return false;
    }
    for (int completions = 0; completions < 2; completions++) {
        struct ibv_wc wc;
        if (!completed(cq, &wc)) {
            return false;
        }
        if (wc.opcode == IBV_WC_RECV && wc.byte_len != sizeof(messages.in)) {
            fprintf(stderr, "client: a message of %u bytes (expected: %zu)\n", wc.byte_len,
                    sizeof(messages.in));
            return false;
        }
    }
    if (messages.in != messages.out + 1) {
        fprintf(stderr, "client: sent %" PRIu64 ", got %" PRIu64 " (expected: the next number)\n",
                messages.out, messages.in);
        return false;
    }
    messages.out = messages.in;
    return true;
}

int main(int argc, char *argv[]) {
    const long given = argc == 4 ? strtol(argv[3], NULL, 10) : 1000;
    if (argc < 3 || argc > 4 || given < 1 || given > ROUNDS_MAX) {
        fprintf(stderr, "usage: %s ADDR PORT [ROUNDS], 1 to %d rounds\n", argv[0], ROUNDS_MAX);
        return EXIT_FAILURE;
    }
    uint32_t rounds = (uint32_t)given;
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_cq *cq = NULL;

    /* The number of rounds goes with the request, so that the server knows when it is done. */
    const struct rpma_conn_private_data ours = {.ptr = &rounds, .len = sizeof(rounds)};
    const int usage = RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, &messages, sizeof(messages), usage, &mr)) &&
              OK(rpma_conn_req_new(peer, argv[1], argv[2], NULL, &request)) &&
              OK(rpma_conn_req_connect(&request, &ours, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
              OK(rpma_conn_get_cq(conn, &cq));

    for (uint32_t round = 0; ok && round < rounds; round++) {
        ok = exchanged(conn, cq, mr);
    }
    if (ok) {
        printf("%u rounds; the last answer was %" PRIu64 "\n", rounds, messages.in);
    }

    /* Both sides get an event when the connection is closed. */
    ok = ok && OK(rpma_conn_disconnect(conn)) && happened(conn, RPMA_CONN_CLOSED);
    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_mr_dereg(&mr)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
