/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 01-connection, server: accepts one client, exchanges a greeting with it, and waits until it has left.
 *
 *     server ADDR PORT
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>

static char greeting[] = "Hello client, this is the server.";

/* True when the call worked. Otherwise says which one did not, and why. */
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

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_ep *endpoint = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;

    /* What the library finds wrong it tells its log: let it, on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING));

    /* The device that serves the address. It belongs to the library: nobody has to close it. */
    ok = ok && OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
         OK(rpma_peer_new(context, &peer)) && OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    /* Blocks until a client asks for a connection. What it sent along is at hand before we decide. */
    struct rpma_conn_private_data theirs = {0};
    ok = ok && OK(rpma_ep_next_conn_req(endpoint, NULL, &request)) &&
         OK(rpma_conn_req_get_private_data(request, &theirs));
    if (ok) {
        /* The bytes are the client's: there may be none, and no 0 at their end. */
        printf("the client says: %.*s\n", (int)theirs.len,
               theirs.ptr != NULL ? (const char *)theirs.ptr : "");
    }

    /* Accepts. Whatever comes of it, the request is used up, and `theirs` with it. */
    const struct rpma_conn_private_data ours = {.ptr = greeting, .len = sizeof(greeting)};
    ok = ok && OK(rpma_conn_req_connect(&request, &ours, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED);
    if (ok) {
        printf("connected\n");
    }

    /* Here would be the work; the other examples do some. This one waits until the client disconnects. */
    ok = ok && happened(conn, RPMA_CONN_CLOSED) && OK(rpma_conn_disconnect(conn));
    if (ok) {
        printf("the client has left\n");
    }

    /* In the order opposite to making them. Deleting what was never made does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_ep_shutdown(&endpoint)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
