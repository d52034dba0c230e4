/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 16-replicate-three, client: replaces a record that three servers keep. The record is committed when two of
 * them have it durably. Any one of them may be slow or missing.
 *
 *     client ADDR PORT ADDR PORT ADDR PORT
 */
#include <errno.h>
#include <inttypes.h>
#include <librpma.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPLICAS 3
#define MAJORITY 2
#define LINE_SIZE 64

/* The record: the number of the last committed line, and two lines that take turns. */
struct record {
    uint64_t number;
    char line[2][LINE_SIZE];
};

/* The state for one server. Nothing is shared, because each server may be reached over another device. */
static struct replica {
    struct rpma_peer *peer;
    struct rpma_mr_local *local; /* found[] and next, registered */
    struct rpma_mr_remote *remote;
    struct rpma_conn_req *request;
    struct rpma_conn *conn;
    struct rpma_cq *cq;
    int cq_fd;
} replicas[REPLICAS];

static struct {
    struct record found[REPLICAS];
    char next[LINE_SIZE];
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

/* Ends a server's connection; the server takes no part any more. */
static bool closed(struct replica *replica) {
    bool ok = OK(rpma_conn_delete(&replica->conn));
    ok = OK(rpma_conn_req_delete(&replica->request)) && ok;
    ok = OK(rpma_mr_remote_delete(&replica->remote)) && ok;
    ok = OK(rpma_mr_dereg(&replica->local)) && ok;
    return OK(rpma_peer_delete(&replica->peer)) && ok;
}

/* Connects to a server and reads its record. */
static bool opened(struct replica *replica, const char *addr, const char *port, int place) {
    struct ibv_context *context = NULL;
    struct ibv_wc wc;
    const int usage = RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST;
    const size_t found = (size_t)place * sizeof(struct record);
    return OK(rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) &&
           OK(rpma_peer_new(context, &replica->peer)) &&
           OK(rpma_mr_reg(replica->peer, &memory, sizeof(memory), usage, &replica->local)) &&
           OK(rpma_conn_req_new(replica->peer, addr, port, NULL, &replica->request)) &&
           OK(rpma_conn_req_connect(&replica->request, NULL, &replica->conn)) &&
           happened(replica->conn, RPMA_CONN_ESTABLISHED) &&
           OK(rpma_conn_get_cq(replica->conn, &replica->cq)) &&
           OK(rpma_cq_get_fd(replica->cq, &replica->cq_fd)) &&
           understood(replica->conn, sizeof(struct record), &replica->remote) &&
           OK(rpma_read(replica->conn, replica->local, found, replica->remote, 0, sizeof(struct record),
                        RPMA_F_COMPLETION_ALWAYS, NULL)) &&
           completed(replica->cq, &wc);
}

/* Posts line and number to one server, without waiting. The number changes only when the line is durable.
 */
static bool posted(const struct replica *replica, uint64_t number) {
    const size_t line = offsetof(struct record, line) + (number % 2) * LINE_SIZE;
    char word[8];
    memcpy(word, &number, sizeof(word));
    return OK(rpma_write(replica->conn, replica->remote, line, replica->local, sizeof(memory.found),
                         LINE_SIZE, RPMA_F_COMPLETION_ON_ERROR, NULL)) &&
           OK(rpma_flush(replica->conn, replica->remote, line, LINE_SIZE, RPMA_FLUSH_TYPE_PERSISTENT,
                         RPMA_F_COMPLETION_ON_ERROR, NULL)) &&
           OK(rpma_atomic_write(replica->conn, replica->remote, offsetof(struct record, number), word,
                                RPMA_F_COMPLETION_ON_ERROR, NULL)) &&
           OK(rpma_flush(replica->conn, replica->remote, offsetof(struct record, number), sizeof(word),
                         RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, NULL));
}

/* Posts to all servers, and collects answers as they come. True when a majority has it. */
static bool committed(uint64_t number) {
    struct pollfd waiting[REPLICAS];
    int open = 0;
    int durable = 0;
    for (int i = 0; i < REPLICAS; i++) {
        const bool takes_part = replicas[i].conn != NULL && posted(&replicas[i], number);
        /* poll() ignores negative descriptors. */
        waiting[i] = (struct pollfd){.fd = takes_part ? replicas[i].cq_fd : -1, .events = POLLIN};
        open += takes_part;
    }
    /* A real program would continue when there is a majority; this one also waits for the last, to report it.
     */
    while (open > 0) {
        if (poll(waiting, REPLICAS, -1) < 0 && errno != EINTR) {
            perror("client: poll");
            return durable >= MAJORITY;
        }
        for (int i = 0; i < REPLICAS; i++) {
            struct ibv_wc wc;
            if (waiting[i].fd < 0 || waiting[i].revents == 0) {
                continue;
            }
            /* Each server gives one completion: of its last flush, or of an operation that failed. */
            waiting[i].fd = -1;
            open--;
            if (completed(replicas[i].cq, &wc)) {
                durable++;
                printf("server %d has it durably%s\n", i, durable == MAJORITY ? ": committed" : "");
            } else {
                printf("server %d has failed\n", i);
            }
        }
    }
    return durable >= MAJORITY;
}

int main(int argc, char *argv[]) {
    if (argc != 1 + 2 * REPLICAS) {
        fprintf(stderr, "usage: %s ADDR PORT ADDR PORT ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING));

    /* The newer record of two servers is at least the last committed one, because two of three have it.
     */
    int present = 0;
    const struct record *newest = &memory.found[0];
    for (int i = 0; ok && i < REPLICAS; i++) {
        if (opened(&replicas[i], argv[1 + 2 * i], argv[2 + 2 * i], i)) {
            present++;
            newest = memory.found[i].number >= newest->number ? &memory.found[i] : newest;
        } else {
            memset(&memory.found[i], 0, sizeof(memory.found[i]));
            printf("server %d is not there\n", i);
            ok = closed(&replicas[i]);
        }
    }
    if (ok && present < MAJORITY) {
        fprintf(stderr, "client: %d servers are there (expected: at least %d)\n", present, MAJORITY);
        ok = false;
    }
    if (ok) {
        printf("the newest is line %" PRIu64 ", \"%.*s\"\n", newest->number, LINE_SIZE,
               newest->line[newest->number % 2]);
        snprintf(memory.next, LINE_SIZE, "line %" PRIu64 ", of %lld s", newest->number + 1,
                 (long long)time(NULL));
    }
    ok = ok && committed(newest->number + 1);
    if (ok) {
        printf("committed: \"%s\"\n", memory.next);
    }

    for (int i = 0; i < REPLICAS; i++) {
        if (replicas[i].conn != NULL &&
            (!OK(rpma_conn_disconnect(replicas[i].conn)) || !happened(replicas[i].conn, RPMA_CONN_CLOSED))) {
            printf("server %d is lost at the end\n", i); /* the record was committed nevertheless */
        }
        ok = closed(&replicas[i]) && ok;
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
