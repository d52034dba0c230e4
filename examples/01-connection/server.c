/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 01-connection, server: accepts one client, exchanges a greeting with it, and waits until it has left.
 *
 *     server ADDR PORT
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>

static const char greeting[] = "Hello client, this is the server.";

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

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    const char *addr = argv[1];
    const char *port = argv[2];
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_ep *endpoint = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    bool ok = false;

    /* The device that serves the address. It belongs to the library: nobody has to close it. */
    if (failed("rpma_utils_get_ibv_context",
               rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) ||
        failed("rpma_peer_new", rpma_peer_new(context, &peer)) ||
        failed("rpma_ep_listen", rpma_ep_listen(peer, addr, port, &endpoint))) {
        goto out;
    }
    printf("listening on %s, port %s\n", addr, port);
    fflush(stdout);

    /* Blocks until a client asks for a connection. What it sent along is at hand before we decide. */
    struct rpma_conn_private_data theirs = {0};
    if (failed("rpma_ep_next_conn_req", rpma_ep_next_conn_req(endpoint, NULL, &request)) ||
        failed("rpma_conn_req_get_private_data", rpma_conn_req_get_private_data(request, &theirs))) {
        goto out;
    }
    /* The bytes are the client's: there may be none, and no 0 at their end. */
    printf("the client says: %.*s\n", (int)theirs.len, theirs.ptr != NULL ? (const char *)theirs.ptr : "");

    /* Accepts. Whatever comes of it, the request is used up, and `theirs` with it. */
    struct rpma_conn_private_data ours = {.ptr = (void *)greeting, .len = sizeof(greeting)};
    if (failed("rpma_conn_req_connect", rpma_conn_req_connect(&request, &ours, &conn)) ||
        other_event(conn, RPMA_CONN_ESTABLISHED)) {
        goto out;
    }
    printf("connected\n");

    /* Here would be the work; the other examples do some. This one waits until the client disconnects. */
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
    ok = !failed("rpma_peer_delete", rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
