/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 07-atomic-write, client: appends lines to the server's log. After a crash at any moment the log has each
 * line completely or not at all.
 *
 *     client ADDR PORT [LINE...]
 */
#include <inttypes.h>
#include <librpma.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_SIZE 4096
#define LINE_SIZE 256

/* The log. Only the first `used` bytes of text count. */
struct log {
    uint64_t used;
    char text[LOG_SIZE - sizeof(uint64_t)];
};

/* The memory for writes and reads. */
static struct {
    uint64_t used;
    char line[LINE_SIZE];
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

/*
 * The server's private data are two descriptors. The first is the server's configuration, which the
 * connection gets. The second is its memory, which must have `size` bytes and becomes a remote region.
 */
static bool understood(struct rpma_conn *conn, size_t size, struct rpma_mr_remote **remote) {
    struct rpma_conn_private_data theirs = {0};
    struct rpma_peer_cfg *config = NULL;
    size_t config_size = 0;
    size_t offered = 0;
    bool ok = OK(rpma_conn_get_private_data(conn, &theirs)) &&
              OK(rpma_peer_cfg_from_descriptor(theirs.ptr, theirs.len, &config)) &&
              OK(rpma_peer_cfg_get_descriptor_size(config, &config_size)) &&
              OK(rpma_conn_apply_remote_peer_cfg(conn, config)) &&
              OK(rpma_mr_remote_from_descriptor((const char *)theirs.ptr + config_size,
                                                theirs.len - config_size, remote)) &&
              OK(rpma_mr_remote_get_size(*remote, &offered));
    if (ok && offered < size) {
        fprintf(stderr, "client: the server offers %zu bytes (expected: at least %zu)\n", offered, size);
        ok = false;
    }
    return OK(rpma_peer_cfg_delete(&config)) && ok;
}

/* Appends one line. True when it is durable. Otherwise the log has the whole line or nothing of it.  */
static bool appended(struct rpma_conn *conn, struct rpma_cq *cq, struct rpma_mr_local *local,
                     struct rpma_mr_remote *remote, const char *line) {
    const int size = snprintf(memory.line, LINE_SIZE, "%s\n", line);
    if (size >= LINE_SIZE || (uint64_t)size > sizeof(((struct log *)0)->text) - memory.used) {
        fprintf(stderr,
                "client: a line of %d bytes (expected: at most %d, and %" PRIu64 " are left in the log)\n",
                size, LINE_SIZE - 1, sizeof(((struct log *)0)->text) - memory.used);
        return false;
    }
    const uint64_t used = memory.used + (uint64_t)size;
    const size_t end = offsetof(struct log, text) + memory.used;
    char word[8];
    memcpy(word, &used, sizeof(word));
    /*
     * Four operations are under way at once, and the client waits for one answer. The server's device takes
     * them in this order: the line is durable before `used` changes, all its 8 bytes at once, and `used` is
     * durable before the last flush is answered.
     */
    struct ibv_wc wc;
    if (!OK(rpma_write(conn, remote, end, local, sizeof(uint64_t), (size_t)size, RPMA_F_COMPLETION_ON_ERROR,
                       NULL)) ||
        !OK(rpma_flush(conn, remote, end, (size_t)size, RPMA_FLUSH_TYPE_PERSISTENT,
                       RPMA_F_COMPLETION_ON_ERROR, NULL)) ||
        !OK(rpma_atomic_write(conn, remote, offsetof(struct log, used), word, RPMA_F_COMPLETION_ON_ERROR,
                              NULL)) ||
        !OK(rpma_flush(conn, remote, offsetof(struct log, used), sizeof(word), RPMA_FLUSH_TYPE_PERSISTENT,
                       RPMA_F_COMPLETION_ALWAYS, NULL)) ||
        !completed(cq, &wc)) {
        return false;
    }
    printf("durable, up to byte %" PRIu64 ": %s\n", used, line);
    memory.used = used;
    return true;
}

/* Reads from the server how much of the log is used. */
static bool measured(struct rpma_conn *conn, struct rpma_cq *cq, struct rpma_mr_local *local,
                     const struct rpma_mr_remote *remote) {
    struct ibv_wc wc;
    if (!OK(rpma_read(conn, local, 0, remote, offsetof(struct log, used), sizeof(uint64_t),
                      RPMA_F_COMPLETION_ALWAYS, NULL)) ||
        !completed(cq, &wc)) {
        return false;
    }
    if (memory.used > sizeof(((struct log *)0)->text)) {
        fprintf(stderr, "client: the log says %" PRIu64 " bytes (expected: at most %zu)\n", memory.used,
                sizeof(((struct log *)0)->text));
        return false;
    }
    return true;
}

int main(int argc, char *argv[]) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s ADDR PORT [LINE...]\n", argv[0]);
        return EXIT_FAILURE;
    }
    char *two_lines[] = {"the first of two lines", "the second of two lines"};
    char **lines = argc > 3 ? argv + 3 : two_lines;
    const int count = argc > 3 ? argc - 3 : 2;
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *local = NULL;
    struct rpma_mr_remote *remote = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_cq *cq = NULL;

    const int usage = RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST;
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, &memory, sizeof(memory), usage, &local)) &&
              OK(rpma_conn_req_new(peer, argv[1], argv[2], NULL, &request)) &&
              OK(rpma_conn_req_connect(&request, NULL, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
              OK(rpma_conn_get_cq(conn, &cq)) && understood(conn, LOG_SIZE, &remote) &&
              measured(conn, cq, local, remote);

    for (int i = 0; ok && i < count; i++) {
        ok = appended(conn, cq, local, remote, lines[i]);
    }
    const uint64_t expected = memory.used;
    ok = ok && measured(conn, cq, local, remote);
    if (ok && memory.used != expected) {
        fprintf(stderr, "client: the log has %" PRIu64 " bytes (expected: %" PRIu64 ")\n", memory.used,
                expected);
        ok = false;
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
