/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 03-read-to-persistent, server: gives a client a page of its memory to read, with the time in it.
 *
 *     server ADDR PORT
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PAGE_SIZE 4096
#define DESCRIPTOR_MAX 32

static _Alignas(PAGE_SIZE) char memory[PAGE_SIZE];

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
    snprintf(memory, sizeof(memory), "the server's data of %lld s", (long long)time(NULL));

    uint8_t descriptor[DESCRIPTOR_MAX] = {0};
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, memory, sizeof(memory), RPMA_MR_USAGE_READ_SRC, &mr)) &&
              described(mr, descriptor) && OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    const struct rpma_conn_private_data ours = {.ptr = descriptor, .len = sizeof(descriptor)};
    ok = ok && OK(rpma_ep_next_conn_req(endpoint, NULL, &request)) &&
         OK(rpma_conn_req_connect(&request, &ours, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED);
    if (ok) {
        printf("connected; the client may read now\n");
    }
    ok = ok && happened(conn, RPMA_CONN_CLOSED) && OK(rpma_conn_disconnect(conn));
    if (ok) {
        printf("the client has left\n");
    }

    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_ep_shutdown(&endpoint)) && ok;
    ok = OK(rpma_mr_dereg(&mr)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
