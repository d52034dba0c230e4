/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 11-write-with-imm, server: lets a client write into places of its memory, and is told with each write which
 * place has been written.
 *
 *     server ADDR PORT
 */
#include <arpa/inet.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>

#define PLACES 4
#define LINE_SIZE 64
#define DESCRIPTOR_MAX 32

static char lines[PLACES][LINE_SIZE];

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

/* Writes the region's descriptor, which gives a peer access to it, to room for DESCRIPTOR_MAX bytes. */
static bool described(const struct rpma_mr_local *mr, uint8_t *descriptor) {
    size_t size = 0;
    if (!OK(rpma_mr_get_descriptor_size(mr, &size))) {
        return false;
    }
    if (size > DESCRIPTOR_MAX) {
        fprintf(stderr, "server: a descriptor of %zu bytes (expected: at most %d)\n", size, DESCRIPTOR_MAX);
        return false;
    }
    return OK(rpma_mr_get_descriptor(mr, descriptor));
}

/* Waits until some place has been written, and shows it. */
static bool shown(struct rpma_cq *cq, bool *seen) {
    struct ibv_wc wc = {0};
    if (!completed(cq, &wc)) {
        return false;
    }
    /* The immediate comes from the client in network order, and is checked before it is used. */
    const uint32_t place = ntohl(wc.imm_data);
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || place >= PLACES || seen[place]) {
        fprintf(
            stderr,
            "server: opcode %d, place %u (expected: a write with an immediate, and a new place below %d)\n",
            (int)wc.opcode, place, PLACES);
        return false;
    }
    seen[place] = true;
    printf("place %u: %.*s\n", place, LINE_SIZE, lines[place]);
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

    uint8_t descriptor[DESCRIPTOR_MAX] = {0};
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_RECV;
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
              OK(rpma_peer_new(context, &peer)) && OK(rpma_mr_reg(peer, lines, sizeof(lines), usage, &mr)) &&
              described(mr, descriptor) && OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    /*
     * The bytes of such a write go to the client's place, and not into a receive. But each write takes one
     * receive, which gets only the immediate. So the receives have no memory.
     */
    ok = ok && OK(rpma_ep_next_conn_req(endpoint, NULL, &request));
    for (int place = 0; ok && place < PLACES; place++) {
        ok = OK(rpma_conn_req_recv(request, mr, 0, 0, NULL));
    }
    const struct rpma_conn_private_data ours = {.ptr = descriptor, .len = sizeof(descriptor)};
    ok = ok && OK(rpma_conn_req_connect(&request, &ours, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
         OK(rpma_conn_get_cq(conn, &cq));
    bool seen[PLACES] = {false};
    for (int place = 0; ok && place < PLACES; place++) {
        ok = shown(cq, seen);
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
