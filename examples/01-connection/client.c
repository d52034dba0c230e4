/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 01-connection, client: connects, exchanges a greeting with the server, and disconnects.
 *
 *     client ADDR PORT
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char greeting[] = "Hello server, this is the client.";
static const char expected_answer[] = "Hello client, this is the server.";

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

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    const char *addr = argv[1];
    const char *port = argv[2];
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    bool ok = false;

    /* The device from which the address is reached. It belongs to the library: nobody has to close it. */
    if (failed("rpma_utils_get_ibv_context",
               rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) ||
        failed("rpma_peer_new", rpma_peer_new(context, &peer)) ||
        failed("rpma_conn_req_new", rpma_conn_req_new(peer, addr, port, NULL, &request))) {
        goto out;
    }

    /*
     * Asks for the connection and takes some bytes along: at most 56 on InfiniBand. Success here only means
     * that the request is on its way; the event says what became of it. RPMA_CONN_REJECTED is what a server
     * that is there but does not listen gives.
     */
    struct rpma_conn_private_data ours = {.ptr = (void *)greeting, .len = sizeof(greeting)};
    if (failed("rpma_conn_req_connect", rpma_conn_req_connect(&request, &ours, &conn)) ||
        other_event(conn, RPMA_CONN_ESTABLISHED)) {
        goto out;
    }

    /* What the server said in its acceptance. The bytes stay ours to read until the connection is deleted. */
    struct rpma_conn_private_data theirs = {0};
    if (failed("rpma_conn_get_private_data", rpma_conn_get_private_data(conn, &theirs))) {
        goto out;
    }
    /* Longer is possible: InfiniBand pads with zeros. */
    ok = theirs.len >= sizeof(expected_answer) &&
         memcmp(theirs.ptr, expected_answer, sizeof(expected_answer)) == 0;
    if (ok) {
        printf("connected; the server says: %s\n", (const char *)theirs.ptr);
    } else {
        fprintf(stderr, "client: the server answered with %u other bytes (expected: its greeting)\n",
                (unsigned)theirs.len);
    }

    /* Whoever disconnects is told, as its peer is, when the connection is closed. */
    ok = !failed("rpma_conn_disconnect", rpma_conn_disconnect(conn)) && ok;
    ok = ok && !other_event(conn, RPMA_CONN_CLOSED);

out:
    /* In the order opposite to making them. Deleting what was never made does nothing. */
    ok = !failed("rpma_conn_delete", rpma_conn_delete(&conn)) && ok;
    ok = !failed("rpma_conn_req_delete", rpma_conn_req_delete(&request)) && ok;
    ok = !failed("rpma_peer_delete", rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
