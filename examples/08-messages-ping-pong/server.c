/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 08-messages-ping-pong, server: answers every message, a number, with the number after it.
 *
 *     server ADDR PORT
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two messages of 8 bytes: the one to send and the one to receive. Both ends have the same byte order. */
enum { SEND, RECEIVE, MESSAGES };
#define OFFSET(message) ((size_t)(message) * sizeof(uint64_t))

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
            fprintf(stderr, "server: a message failed: status %d of enum ibv_wc_status\n", (int)wc.status);
            return true;
        }
        if (wc.opcode == IBV_WC_RECV && wc.byte_len != sizeof(uint64_t)) {
            fprintf(stderr, "server: a message of %u bytes (expected: %zu)\n", wc.byte_len, sizeof(uint64_t));
            return true;
        }
        sent = sent || wc.opcode == IBV_WC_SEND;
        received = received || wc.opcode == IBV_WC_RECV;
    }
    return false;
}

/* Answers as many messages as were announced; the receive of the first is already posted. True when one
 * failed. */
static bool cannot_answer(struct rpma_conn *conn, struct rpma_mr_local *mr, uint64_t *messages,
                          uint32_t rounds) {
    struct rpma_cq *cq = NULL;
    if (failed("rpma_conn_get_cq", rpma_conn_get_cq(conn, &cq))) {
        return true;
    }
    for (uint32_t round = 0; round < rounds; round++) {
        /* Nothing was sent before the first message. */
        if (no_message(cq, round == 0)) {
            return true;
        }
        messages[SEND] = messages[RECEIVE] + 1;
        /* The next receive is posted before the answer that lets the client send again. */
        if (failed("rpma_recv", rpma_recv(conn, mr, OFFSET(RECEIVE), sizeof(uint64_t), NULL)) ||
            failed("rpma_send",
                   rpma_send(conn, mr, OFFSET(SEND), sizeof(uint64_t), RPMA_F_COMPLETION_ALWAYS, NULL))) {
            return true;
        }
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
    struct rpma_mr_local *mr = NULL;
    struct rpma_ep *endpoint = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    uint64_t messages[MESSAGES] = {0};
    bool ok = false;

    const int usage = RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;
    if (failed("rpma_utils_get_ibv_context",
               rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) ||
        failed("rpma_peer_new", rpma_peer_new(context, &peer)) ||
        failed("rpma_mr_reg", rpma_mr_reg(peer, messages, sizeof(messages), usage, &mr)) ||
        failed("rpma_ep_listen", rpma_ep_listen(peer, addr, port, &endpoint))) {
        goto out;
    }
    printf("listening on %s, port %s\n", addr, port);
    fflush(stdout);

    /* The client says with its request how many rounds it wants to play. */
    struct rpma_conn_private_data theirs = {0};
    uint32_t rounds = 0;
    if (failed("rpma_ep_next_conn_req", rpma_ep_next_conn_req(endpoint, NULL, &request)) ||
        failed("rpma_conn_req_get_private_data", rpma_conn_req_get_private_data(request, &theirs))) {
        goto out;
    }
    if (theirs.len < sizeof(rounds)) {
        fprintf(stderr, "server: the client sent %u bytes (expected: %zu)\n", (unsigned)theirs.len,
                sizeof(rounds));
        goto out;
    }
    memcpy(&rounds, theirs.ptr, sizeof(rounds));

    /* A message needs a receive that waits for it. The first is posted before the client can know that it may
     * send. */
    if (failed("rpma_conn_req_recv",
               rpma_conn_req_recv(request, mr, OFFSET(RECEIVE), sizeof(uint64_t), NULL)) ||
        failed("rpma_conn_req_connect", rpma_conn_req_connect(&request, NULL, &conn)) ||
        other_event(conn, RPMA_CONN_ESTABLISHED) || cannot_answer(conn, mr, messages, rounds) ||
        other_event(conn, RPMA_CONN_CLOSED) || failed("rpma_conn_disconnect", rpma_conn_disconnect(conn))) {
        goto out;
    }
    printf("answered %u messages; the client has left\n", rounds);
    ok = true;

out:
    /* In the order opposite to making them. Deleting what was never made does nothing. */
    ok = !failed("rpma_conn_delete", rpma_conn_delete(&conn)) && ok;
    ok = !failed("rpma_conn_req_delete", rpma_conn_req_delete(&request)) && ok;
    ok = !failed("rpma_ep_shutdown", rpma_ep_shutdown(&endpoint)) && ok;
    ok = !failed("rpma_mr_dereg", rpma_mr_dereg(&mr)) && ok;
    ok = !failed("rpma_peer_delete", rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
