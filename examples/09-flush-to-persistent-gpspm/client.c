/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 09-flush-to-persistent-gpspm, client: writes lines into the server's file and asks the server, by message,
 * to make each durable (the General Purpose Server Persistency Method).
 *
 *     client ADDR PORT
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flush.pb-c.h"

#define REGION_SIZE 8192 /* as the server offers it */
#define MESSAGE_MAX 64   /* bytes of a request or a response */
#define LINE_SIZE 64

/* The memory for the line that is written, for requests and for responses. */
static struct {
    char line[LINE_SIZE];
    uint8_t request[MESSAGE_MAX];
    uint8_t response[MESSAGE_MAX];
} memory;

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
        fprintf(stderr, "client: an operation failed: status %d of enum ibv_wc_status\n", (int)wc->status);
    }
    return wc->status == IBV_WC_SUCCESS;
}

/* Makes a remote region of the descriptor in the server's private data. The region must have `size` bytes. */
static bool understood(struct rpma_conn *conn, size_t size, struct rpma_mr_remote **remote) {
    struct rpma_conn_private_data theirs = {0};
    size_t offered = 0;
    if (!OK(rpma_conn_get_private_data(conn, &theirs)) ||
        !OK(rpma_mr_remote_from_descriptor(theirs.ptr, theirs.len, remote)) ||
        !OK(rpma_mr_remote_get_size(*remote, &offered))) {
        return false;
    }
    if (offered < size) {
        fprintf(stderr, "client: the server offers %zu bytes (expected: at least %zu)\n", offered, size);
    }
    return offered >= size;
}

/* Whether the response, of `size` bytes, says that the range is durable. */
static bool is_durable(size_t size) {
    FlushResponse *response = flush_response__unpack(NULL, size, memory.response);
    if (response == NULL) {
        fprintf(stderr, "client: a message of %zu bytes (expected: a FlushResponse)\n", size);
        return false;
    }
    const uint32_t error = response->error;
    flush_response__free_unpacked(response, NULL);
    if (error != 0) {
        fprintf(stderr, "client: the server could not make it durable: %s\n", strerror((int)error));
    }
    return error == 0;
}

/* Writes a line to the server's file, and waits until the server says that it is durable. */
static bool written(struct rpma_conn *conn, struct rpma_cq *cq, struct rpma_mr_local *local,
                    struct rpma_mr_remote *remote, uint64_t offset, bool is_last) {
    FlushRequest request = FLUSH_REQUEST__INIT;
    request.offset = offset;
    request.length = LINE_SIZE;
    request.has_is_last = true;
    request.is_last = is_last;
    const size_t size = flush_request__get_packed_size(&request);
    if (size > MESSAGE_MAX) {
        fprintf(stderr, "client: a request of %zu bytes (expected: at most %d)\n", size, MESSAGE_MAX);
        return false;
    }
    flush_request__pack(&request, memory.request);
    snprintf(memory.line, LINE_SIZE, "the line at byte %llu", (unsigned long long)offset);

    /* The message follows the write, so the line is in the server's memory when the message is received. */
    if (!OK(rpma_recv(conn, local, LINE_SIZE + MESSAGE_MAX, MESSAGE_MAX, NULL)) ||
        !OK(rpma_write(conn, remote, offset, local, 0, LINE_SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL)) ||
        !OK(rpma_send(conn, local, LINE_SIZE, size, RPMA_F_COMPLETION_ALWAYS, NULL))) {
        return false;
    }
    /* Two completions come, in any order: the request has left, and the response has come. */
    uint32_t response_size = 0;
    for (int completions = 0; completions < 2; completions++) {
        struct ibv_wc wc;
        if (!completed(cq, &wc)) {
            return false;
        }
        if (wc.opcode == IBV_WC_RECV) {
            response_size = wc.byte_len;
        }
    }
    return is_durable(response_size);
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *local = NULL;
    struct rpma_mr_remote *remote = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_cq *cq = NULL;

    const int usage = RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, &memory, sizeof(memory), usage, &local)) &&
              OK(rpma_conn_req_new(peer, argv[1], argv[2], NULL, &request)) &&
              OK(rpma_conn_req_connect(&request, NULL, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
              OK(rpma_conn_get_cq(conn, &cq)) && understood(conn, REGION_SIZE, &remote);

    const uint64_t offsets[] = {0, REGION_SIZE - LINE_SIZE};
    for (int i = 0; ok && i < 2; i++) {
        ok = written(conn, cq, local, remote, offsets[i], i == 1);
        if (ok) {
            printf("durable on the server: %s\n", memory.line);
        }
    }

    /* Both sides get an event when the connection is closed. */
    ok = ok && OK(rpma_conn_disconnect(conn)) && happened(conn, RPMA_CONN_CLOSED);
    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    ok = OK(rpma_mr_remote_delete(&remote)) && ok;
    ok = OK(rpma_mr_dereg(&local)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
