/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 02-read-to-volatile, server: offers a page of its memory for reading and waits until the client has left.
 * It takes no part in the reading itself.
 *
 *     server ADDR PORT
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_SIZE 4096

static const char text[] = "These bytes were read out of the server's memory.";

/* What the server tells a client in its private data. Bytes only, so that it is the same on every machine. */
struct offer {
    uint8_t descriptor_size;
    uint8_t descriptor[31];
};

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

/* Fills in where the memory is and with which key a peer may read it. */
static bool cannot_offer(struct rpma_mr_local *mr, struct offer *offer) {
    size_t size = 0;
    if (failed("rpma_mr_get_descriptor_size", rpma_mr_get_descriptor_size(mr, &size))) {
        return true;
    }
    if (size > sizeof(offer->descriptor)) {
        fprintf(stderr, "server: a descriptor of %zu bytes (expected: at most %zu)\n", size,
                sizeof(offer->descriptor));
        return true;
    }
    offer->descriptor_size = (uint8_t)size;
    return failed("rpma_mr_get_descriptor", rpma_mr_get_descriptor(mr, offer->descriptor));
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
    bool ok = false;

    char *memory = aligned_alloc(PAGE_SIZE, PAGE_SIZE);
    if (memory == NULL) {
        fprintf(stderr, "server: no memory\n");
        return EXIT_FAILURE;
    }
    memset(memory, 0, PAGE_SIZE);
    memcpy(memory, text, sizeof(text));

    /* Memory has to be registered before a peer may touch it, with all that may be done to it: only reading,
     * here. */
    struct offer offer = {0};
    if (failed("rpma_utils_get_ibv_context",
               rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) ||
        failed("rpma_peer_new", rpma_peer_new(context, &peer)) ||
        failed("rpma_mr_reg", rpma_mr_reg(peer, memory, PAGE_SIZE, RPMA_MR_USAGE_READ_SRC, &mr)) ||
        cannot_offer(mr, &offer) || failed("rpma_ep_listen", rpma_ep_listen(peer, addr, port, &endpoint))) {
        goto out;
    }
    printf("listening on %s, port %s\n", addr, port);
    fflush(stdout);

    struct rpma_conn_private_data ours = {.ptr = &offer, .len = sizeof(offer)};
    if (failed("rpma_ep_next_conn_req", rpma_ep_next_conn_req(endpoint, NULL, &request)) ||
        failed("rpma_conn_req_connect", rpma_conn_req_connect(&request, &ours, &conn)) ||
        other_event(conn, RPMA_CONN_ESTABLISHED)) {
        goto out;
    }
    printf("connected; the client may read now\n");

    /* The thread sleeps in here while the device serves the reads. */
    if (other_event(conn, RPMA_CONN_CLOSED) || failed("rpma_conn_disconnect", rpma_conn_disconnect(conn))) {
        goto out;
    }
    printf("the client has left\n");
    ok = true;

out:
    /* In the order opposite to making them. Deleting what was never made does nothing. */
    ok = !failed("rpma_conn_delete", rpma_conn_delete(&conn)) && ok;
    ok = !failed("rpma_conn_req_delete", rpma_conn_req_delete(&request)) && ok;
    ok = !failed("rpma_ep_shutdown", rpma_ep_shutdown(&endpoint)) && ok;
    ok = !failed("rpma_mr_dereg", rpma_mr_dereg(&mr)) && ok;
    ok = !failed("rpma_peer_delete", rpma_peer_delete(&peer)) && ok;
    free(memory);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
