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

static char greeting[] = "Hello server, this is the client.";
static const char expected_answer[] = "Hello client, this is the server.";

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

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;

    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING));

    /* The device from which the address is reached. It belongs to the library, so the program does not close
     * it. */
    ok = ok && OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) &&
         OK(rpma_peer_new(context, &peer)) && OK(rpma_conn_req_new(peer, argv[1], argv[2], NULL, &request));

    /*
     * Asks for the connection and sends some bytes with the request: at most 56 on InfiniBand. Success only
     * means that the request is under way; the event tells the result. When no program listens, it is
     * RPMA_CONN_REJECTED.
     */
    const struct rpma_conn_private_data ours = {.ptr = greeting, .len = sizeof(greeting)};
    ok = ok && OK(rpma_conn_req_connect(&request, &ours, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED);

    /* The bytes that came with the server's acceptance. They are valid until the connection is deleted.
     * InfiniBand pads them with zeros. */
    struct rpma_conn_private_data theirs = {0};
    ok = ok && OK(rpma_conn_get_private_data(conn, &theirs));
    if (ok && (theirs.len < sizeof(expected_answer) ||
               memcmp(theirs.ptr, expected_answer, sizeof(expected_answer)) != 0)) {
        fprintf(stderr, "client: the server answered with %u other bytes (expected: its greeting)\n",
                (unsigned)theirs.len);
        ok = false;
    }
    if (ok) {
        printf("connected; the server says: %s\n", (const char *)theirs.ptr);
    }

    /* Both sides get an event when the connection is closed. */
    ok = ok && OK(rpma_conn_disconnect(conn)) && happened(conn, RPMA_CONN_CLOSED);
    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
