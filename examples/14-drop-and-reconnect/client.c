/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 14-drop-and-reconnect, client: writes numbers into the server's memory. When the connection breaks it
 * connects again, asks how many numbers the server has, and continues from there.
 *
 *     client ADDR PORT
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <errno.h>
#include <inttypes.h>
#include <librpma.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NUMBERS 12
#define ATTEMPTS_MAX 10 /* in a row, without a number more */

/* The server's memory: the first `count` numbers are there. */
struct region {
    uint64_t count;
    uint64_t numbers[NUMBERS];
};

/* The memory for writes, sends, reads and receives. */
struct memory {
    uint64_t number;
    uint64_t count;
    uint64_t answer;
};
static struct memory memory;

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

/*
 * Waits for the next completion of the queue. True when it came and its operation succeeded. What ends the
 * connection ends the wait: InfiniBand devices complete no operation for a peer that has gone, and only give
 * the event.
 */
static bool completed(struct rpma_conn *conn, struct rpma_cq *cq, struct ibv_wc *wc) {
    struct pollfd waiting[] = {{.fd = -1, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    if (!OK(rpma_cq_get_fd(cq, &waiting[0].fd)) || !OK(rpma_conn_get_event_fd(conn, &waiting[1].fd))) {
        return false;
    }
    int ret = rpma_cq_get_wc(cq, 1, wc, NULL);
    /* A wait may end without a completion, so this is a loop. */
    while (ret == RPMA_E_NO_COMPLETION) {
        if (poll(waiting, 2, -1) < 0) {
            if (errno != EINTR) {
                perror("client: poll");
                return false;
            }
            continue;
        }
        /* The completions before the end come first. */
        if (waiting[0].revents != 0) {
            if (!OK(rpma_cq_wait(cq))) {
                return false;
            }
        } else if (waiting[1].revents != 0) {
            enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
            if (OK(rpma_conn_next_event(conn, &event))) {
                fprintf(stderr, "client: %s (expected: a completion)\n", rpma_utils_conn_event_2str(event));
            }
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

/* Asks the server how many numbers it has, because this side may have lost an answer. */
static bool asked(struct rpma_conn *conn, struct rpma_cq *cq, struct rpma_mr_local *mr,
                  const struct rpma_mr_remote *remote) {
    struct ibv_wc wc;
    if (!OK(rpma_read(conn, mr, sizeof(uint64_t), remote, offsetof(struct region, count), sizeof(uint64_t),
                      RPMA_F_COMPLETION_ALWAYS, NULL)) ||
        !completed(conn, cq, &wc)) {
        return false;
    }
    if (memory.count > NUMBERS) {
        fprintf(stderr, "client: the server has %" PRIu64 " numbers (expected: at most %d)\n", memory.count,
                NUMBERS);
        return false;
    }
    return true;
}

/*
 * Adds the next number, sends it to the server's program as well, and waits for its answer, the count of
 * numbers. The server has each number completely or not at all.
 */
static bool added(struct rpma_conn *conn, struct rpma_cq *cq, struct rpma_mr_local *mr,
                  struct rpma_mr_remote *remote) {
    struct ibv_wc wc;
    const uint64_t count = memory.count + 1;
    char word[8];
    memcpy(word, &count, sizeof(word));
    memory.number = count;
    const size_t place = offsetof(struct region, numbers) + memory.count * sizeof(uint64_t);
    if (!OK(rpma_recv(conn, mr, offsetof(struct memory, answer), sizeof(uint64_t), NULL)) ||
        !OK(rpma_write(conn, remote, place, mr, 0, sizeof(uint64_t), RPMA_F_COMPLETION_ON_ERROR, NULL)) ||
        !OK(rpma_flush(conn, remote, place, sizeof(uint64_t), RPMA_FLUSH_TYPE_VISIBILITY,
                       RPMA_F_COMPLETION_ON_ERROR, NULL)) ||
        !OK(rpma_atomic_write(conn, remote, offsetof(struct region, count), word, RPMA_F_COMPLETION_ON_ERROR,
                              NULL)) ||
        !OK(rpma_send(conn, mr, 0, sizeof(uint64_t), RPMA_F_COMPLETION_ALWAYS, NULL)) ||
        /* The message has left and the answer has come, in any order. */
        !completed(conn, cq, &wc) || !completed(conn, cq, &wc)) {
        return false;
    }
    if (memory.answer != count) {
        fprintf(stderr, "client: the server answers %" PRIu64 " (expected: %" PRIu64 ")\n", memory.answer,
                count);
        return false;
    }
    memory.count = count;
    return true;
}

/*
 * Uses one connection, from its request to its end. True when the server has all numbers. After any failure
 * (a call, an operation's completion, an unexpected event) the connection is not used again.
 */
static bool finished(struct rpma_peer *peer, char *argv[], struct rpma_mr_local *mr) {
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *conn = NULL;
    struct rpma_mr_remote *remote = NULL;
    struct rpma_cq *cq = NULL;
    bool ok = OK(rpma_conn_req_new(peer, argv[1], argv[2], NULL, &request)) &&
              OK(rpma_conn_req_connect(&request, NULL, &conn)) && happened(conn, RPMA_CONN_ESTABLISHED) &&
              OK(rpma_conn_get_cq(conn, &cq)) && understood(conn, sizeof(struct region), &remote) &&
              asked(conn, cq, mr, remote);
    if (ok) {
        printf("connected; the server has %" PRIu64 " numbers\n", memory.count);
    }
    while (ok && memory.count < NUMBERS) {
        ok = added(conn, cq, mr, remote);
    }
    ok = ok && OK(rpma_conn_disconnect(conn)) && happened(conn, RPMA_CONN_CLOSED);
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_conn_req_delete(&request)) && ok;
    return OK(rpma_mr_remote_delete(&remote)) && ok;
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *mr = NULL;

    /* The device, the peer and the registered memory outlive connections. */
    const int usage =
        RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_REMOTE, &context)) &&
              OK(rpma_peer_new(context, &peer)) && OK(rpma_mr_reg(peer, &memory, sizeof(memory), usage, &mr));

    bool done = false;
    for (int attempt = 1; ok && !done; attempt++) {
        const uint64_t before = memory.count;
        done = finished(peer, argv, mr);
        if (done) {
            break;
        }
        attempt = memory.count != before ? 1 : attempt;
        ok = attempt < ATTEMPTS_MAX;
        /* The longer the server is away, the more patience: 50 ms, 100 ms, ... */
        const struct timespec pause = {.tv_nsec = attempt * 50000000L};
        nanosleep(&pause, NULL);
    }
    if (ok) {
        printf("the server has all %d numbers\n", NUMBERS);
    } else {
        fprintf(stderr, "client: given up\n");
    }

    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_mr_dereg(&mr)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
