/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 13-messages-ping-pong-srq-many, server: answers the messages of many clients. All receives are in one
 * shared receive queue and complete on one completion queue, so that one thread waits in one place for all of
 * them.
 *
 *     server ADDR PORT [CLIENTS]
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 100
#define RECEIVES 32 /* for all clients together; a buffer each */

static struct client {
    struct rpma_conn *conn;
    struct rpma_cq *cq; /* this client's sends complete here */
    uint32_t qp_num;    /* the name of the connection in completions of the shared queue */
    uint32_t rounds_left;
} clients[CLIENTS_MAX];

static struct {
    uint64_t in[RECEIVES];
    uint64_t out;
} messages;

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

/* Posts the receive of a buffer; its number comes back in the completion. */
static bool receive_posted(struct rpma_srq *srq, struct rpma_mr_local *mr, uintptr_t buffer) {
    return OK(rpma_srq_recv(srq, mr, buffer * sizeof(uint64_t), sizeof(uint64_t), (const void *)buffer));
}

/* Accepts one client, whose request says how many rounds it wants. */
static bool accepted(struct rpma_ep *endpoint, const struct rpma_conn_cfg *config, struct client *client) {
    struct rpma_conn_req *request = NULL;
    struct rpma_conn_private_data theirs = {0};
    bool ok = OK(rpma_ep_next_conn_req(endpoint, config, &request)) &&
              OK(rpma_conn_req_get_private_data(request, &theirs));
    if (ok && theirs.len < sizeof(client->rounds_left)) {
        fprintf(stderr, "server: a client sent %u bytes (expected: %zu)\n", (unsigned)theirs.len,
                sizeof(client->rounds_left));
        ok = false;
    }
    if (ok) {
        memcpy(&client->rounds_left, theirs.ptr, sizeof(client->rounds_left));
    }
    ok = ok && OK(rpma_conn_req_connect(&request, NULL, &client->conn)) &&
         happened(client->conn, RPMA_CONN_ESTABLISHED) && OK(rpma_conn_get_cq(client->conn, &client->cq)) &&
         OK(rpma_conn_get_qp_num(client->conn, &client->qp_num));
    return OK(rpma_conn_req_delete(&request)) && ok;
}

/* Takes the next message of any client, and answers it. */
static bool answered(struct rpma_srq *srq, struct rpma_cq *rcq, struct rpma_mr_local *mr, unsigned count) {
    struct ibv_wc wc = {0};
    if (!completed(rcq, &wc)) {
        return false;
    }
    struct client *client = clients;
    while (client < clients + count && client->qp_num != wc.qp_num) {
        client++;
    }
    if (client == clients + count || client->rounds_left == 0 || wc.byte_len != sizeof(uint64_t)) {
        fprintf(stderr,
                "server: %u bytes on connection %u (expected: %zu, of a client that has rounds left)\n",
                wc.byte_len, wc.qp_num, sizeof(uint64_t));
        return false;
    }
    messages.out = messages.in[wc.wr_id] + 1;
    client->rounds_left--;
    /* The buffer is free again, and is posted before the answer that lets a client send the next message. */
    return receive_posted(srq, mr, (uintptr_t)wc.wr_id) &&
           OK(rpma_send(client->conn, mr, sizeof(messages.in), sizeof(messages.out), RPMA_F_COMPLETION_ALWAYS,
                        NULL)) &&
           completed(client->cq, &wc);
}

int main(int argc, char *argv[]) {
    const unsigned long count = argc == 4 ? strtoul(argv[3], NULL, 10) : 3;
    if (argc < 3 || argc > 4 || count < 1 || count > CLIENTS_MAX) {
        fprintf(stderr, "usage: %s ADDR PORT [CLIENTS], 1 to %d clients\n", argv[0], CLIENTS_MAX);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_srq_cfg *srq_config = NULL;
    struct rpma_srq *srq = NULL;
    struct rpma_conn_cfg *config = NULL;
    struct rpma_ep *endpoint = NULL;
    struct rpma_cq *rcq = NULL;

    const int usage = RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, &messages, sizeof(messages), usage, &mr)) &&
              OK(rpma_srq_cfg_new(&srq_config)) && OK(rpma_srq_cfg_set_rq_size(srq_config, RECEIVES)) &&
              OK(rpma_srq_cfg_set_rcq_size(srq_config, RECEIVES)) &&
              OK(rpma_srq_new(peer, srq_config, &srq)) && OK(rpma_srq_get_rcq(srq, &rcq)) &&
              OK(rpma_conn_cfg_new(&config)) && OK(rpma_conn_cfg_set_srq(config, srq));
    for (uintptr_t buffer = 0; ok && buffer < RECEIVES; buffer++) {
        ok = receive_posted(srq, mr, buffer);
    }
    ok = ok && OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    /* Clients that come early may send already; their messages take receives of the shared queue. */
    uint64_t rounds = 0;
    for (unsigned long i = 0; ok && i < count; i++) {
        ok = accepted(endpoint, config, &clients[i]);
        rounds += clients[i].rounds_left;
    }
    for (uint64_t round = 0; ok && round < rounds; round++) {
        ok = answered(srq, rcq, mr, (unsigned)count);
    }
    for (unsigned long i = 0; ok && i < count; i++) {
        ok = happened(clients[i].conn, RPMA_CONN_CLOSED) && OK(rpma_conn_disconnect(clients[i].conn));
    }
    if (ok) {
        printf("answered %llu messages of %lu clients, which have left\n", (unsigned long long)rounds, count);
    }

    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    for (unsigned long i = 0; i < count; i++) {
        ok = OK(rpma_conn_delete(&clients[i].conn)) && ok;
    }
    ok = OK(rpma_ep_shutdown(&endpoint)) && ok;
    ok = OK(rpma_conn_cfg_delete(&config)) && ok;
    ok = OK(rpma_srq_delete(&srq)) && ok; /* after its connections */
    ok = OK(rpma_srq_cfg_delete(&srq_config)) && ok;
    ok = OK(rpma_mr_dereg(&mr)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
