/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 08-messages-ping-pong, client: sends a number, waits for the number after it, and sends that, for some
 * rounds.
 *
 *     client ADDR PORT [ROUNDS]
 */
#include <inttypes.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_ROUNDS 1000
#define MAX_ROUNDS 1000000000

/* Two messages of 8 bytes: the one to send and the one to receive. Both ends have the same byte order. */
enum { SEND, RECEIVE, MESSAGES };
#define OFFSET(message) ((size_t)(message) * sizeof(uint64_t))

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

/* Blocks until a message is received and the one sent before it is done with. True when either failed. */
static bool no_message(struct rpma_cq *cq, bool sent) {
    bool received = false;
    while (!sent || !received) {
        struct ibv_wc wc = {0};
        const int ret = rpma_cq_get_wc(cq, 1, &wc, NULL);
        if (ret == RPMA_E_NO_COMPLETION) {
            if (failed("rpma_cq_wait", rpma_cq_wait(cq))) {
                return true;
            }
            continue;
        }
        if (failed("rpma_cq_get_wc", ret)) {
            return true;
        }
        if (wc.status != IBV_WC_SUCCESS) {
            fprintf(stderr, "client: a message failed: status %d of enum ibv_wc_status\n", (int)wc.status);
            return true;
        }
        if (wc.opcode == IBV_WC_RECV && wc.byte_len != sizeof(uint64_t)) {
            fprintf(stderr, "client: a message of %u bytes (expected: %zu)\n", wc.byte_len, sizeof(uint64_t));
            return true;
        }
        sent = sent || wc.opcode == IBV_WC_SEND;
        received = received || wc.opcode == IBV_WC_RECV;
    }
    return false;
}

/* Plays the rounds. True when a message failed, or an answer was not the right one. */
static bool cannot_play(struct rpma_conn *conn, struct rpma_mr_local *mr, uint64_t *messages,
                        uint32_t rounds) {
    struct rpma_cq *cq = NULL;
    if (failed("rpma_conn_get_cq", rpma_conn_get_cq(conn, &cq))) {
        return true;
    }
    messages[SEND] = 1;
    for (uint32_t round = 0; round < rounds; round++) {
        /* The receive of the answer is posted before the message that it answers. */
        if (failed("rpma_recv", rpma_recv(conn, mr, OFFSET(RECEIVE), sizeof(uint64_t), NULL)) ||
            failed("rpma_send",
                   rpma_send(conn, mr, OFFSET(SEND), sizeof(uint64_t), RPMA_F_COMPLETION_ALWAYS, NULL)) ||
            no_message(cq, false)) {
            return true;
        }
        if (messages[RECEIVE] != messages[SEND] + 1) {
            fprintf(stderr, "client: sent %" PRIu64 ", got %" PRIu64 " (expected: the next number)\n",
                    messages[SEND], messages[RECEIVE]);
            return true;
        }
        messages[SEND] = messages[RECEIVE];
    }
    return false;
}

int main(int argc, char *argv[]) {
    char *end = NULL;
    const long given = argc == 4 ? strtol(argv[3], &end, 10) : DEFAULT_ROUNDS;
    if (argc < 3 || argc > 4 || (end != NULL && *end != '\0') || given < 1 || given > MAX_ROUNDS) {
        fprintf(stderr, "usage: %s ADDR PORT [ROUNDS], 1 to %d rounds\n", argv[0], MAX_ROUNDS);
        return EXIT_FAILURE;
    }
    const char *addr = argv[1];
    const char *port = argv[2];
    const uint32_t rounds = (uint32_t)given;
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    uint64_t messages[MESSAGES] = {0};
    bool ok = false;

    /* The number of rounds goes with the request, so that the server knows when it is done. */
    struct rpma_conn_private_data ours = {.ptr = (void *)&rounds, .len = sizeof(rounds)};
    const int usage = RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;
    if (failed("rpma_utils_get_ibv_context",
               rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) ||
        failed("rpma_peer_new", rpma_peer_new(context, &peer)) ||
        failed("rpma_mr_reg", rpma_mr_reg(peer, messages, sizeof(messages), usage, &mr)) ||
        failed("rpma_conn_req_new", rpma_conn_req_new(peer, addr, port, NULL, &request)) ||
        failed("rpma_conn_req_connect", rpma_conn_req_connect(&request, &ours, &conn)) ||
        other_event(conn, RPMA_CONN_ESTABLISHED)) {
        goto out;
    }

    ok = !cannot_play(conn, mr, messages, rounds);
    if (ok) {
        printf("%u rounds; the last answer was %" PRIu64 "\n", rounds, messages[RECEIVE]);
    }

    /* Whoever disconnects is told, as its peer is, when the connection is closed. */
    ok = !failed("rpma_conn_disconnect", rpma_conn_disconnect(conn)) && ok;
    ok = ok && !other_event(conn, RPMA_CONN_CLOSED);

out:
    /* In the order opposite to making them. Deleting what was never made does nothing. */
    ok = !failed("rpma_conn_delete", rpma_conn_delete(&conn)) && ok;
    ok = !failed("rpma_conn_req_delete", rpma_conn_req_delete(&request)) && ok;
    ok = !failed("rpma_mr_dereg", rpma_mr_dereg(&mr)) && ok;
    ok = !failed("rpma_peer_delete", rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
