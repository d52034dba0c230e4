/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 14-drop-and-reconnect, server: gets numbers written into its memory, and drops its first connections in the
 * middle of that, as if a cable was pulled. It keeps its numbers; the client connects again and continues.
 *
 *     server ADDR PORT
 */
#include <errno.h>
#include <inttypes.h>
#include <librpma.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMBERS 12
#define DROPS 2      /* the number of connections that are dropped */
#define DROP_AFTER 3 /* the number of messages before each drop */
#define DESCRIPTOR_MAX 32

/* The first `count` numbers are there. The device changes it at any time, so it is atomic. */
struct memory {
    _Atomic uint64_t count;
    uint64_t numbers[NUMBERS];
    uint64_t message; /* the last message that was received */
};
static struct memory memory;

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
                perror("server: poll");
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
                fprintf(stderr, "server: %s (expected: a completion)\n", rpma_utils_conn_event_2str(event));
            }
            return false;
        }
        ret = rpma_cq_get_wc(cq, 1, wc, NULL);
    }
    if (!worked("rpma_cq_get_wc", ret)) {
        return false;
    }
    if (wc->status != IBV_WC_SUCCESS) {
        fprintf(stderr, "server: an operation failed: status %d of enum ibv_wc_status\n", (int)wc->status);
    }
    return wc->status == IBV_WC_SUCCESS;
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

/* Accepts a connection. It sends a message for each number: at most as many as there are receives. */
static bool accepted(struct rpma_ep *endpoint, const struct rpma_conn_cfg *config, struct rpma_mr_local *mr,
                     const uint8_t *descriptor, struct rpma_conn **conn) {
    struct rpma_conn_req *request = NULL;
    const struct rpma_conn_private_data ours = {.ptr = (void *)descriptor, .len = DESCRIPTOR_MAX};
    bool ok = OK(rpma_ep_next_conn_req(endpoint, config, &request));
    for (int i = 0; ok && i < NUMBERS; i++) {
        ok = OK(rpma_conn_req_recv(request, mr, offsetof(struct memory, message), sizeof(uint64_t), NULL));
    }
    ok = ok && OK(rpma_conn_req_connect(&request, &ours, conn)) && happened(*conn, RPMA_CONN_ESTABLISHED);
    return OK(rpma_conn_req_delete(&request)) && ok;
}

/*
 * Takes a message for each number and answers it; the client waits for the answer. It ends when all numbers
 * have come, or after this many messages, of which the last gets no answer.
 */
static bool followed(struct rpma_conn *conn, struct rpma_mr_local *mr, int messages) {
    struct rpma_cq *cq = NULL;
    struct ibv_wc wc;
    bool ok = OK(rpma_conn_get_cq(conn, &cq)) && completed(conn, cq, &wc);
    for (int i = 1; ok && i < messages; i++) {
        /* The client's number was placed before its message was received: `count` has it. */
        const bool is_last = atomic_load(&memory.count) == NUMBERS;
        ok = memory.message == atomic_load(&memory.count) &&
             OK(rpma_send(conn, mr, offsetof(struct memory, count), sizeof(uint64_t),
                          RPMA_F_COMPLETION_ON_ERROR, NULL));
        if (is_last) {
            break;
        }
        ok = ok && completed(conn, cq, &wc);
    }
    return ok;
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_conn_cfg *config = NULL;
    struct rpma_ep *endpoint = NULL;
    struct rpma_conn *conn = NULL;

    uint8_t descriptor[DESCRIPTOR_MAX] = {0};
    const int usage = RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY |
                      RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND;
    /* Lets the library print its warnings and errors on standard error too. */
    bool ok = OK(rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING)) &&
              OK(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context)) &&
              OK(rpma_peer_new(context, &peer)) &&
              OK(rpma_mr_reg(peer, &memory, sizeof(memory), usage, &mr)) && OK(rpma_conn_cfg_new(&config)) &&
              OK(rpma_conn_cfg_set_rq_size(config, NUMBERS)) &&
              OK(rpma_conn_cfg_set_sq_size(config, NUMBERS)) &&
              OK(rpma_conn_cfg_set_cq_size(config, 2 * NUMBERS)) && described(mr, descriptor) &&
              OK(rpma_ep_listen(peer, argv[1], argv[2], &endpoint));
    if (ok) {
        printf("listening on %s, port %s\n", argv[1], argv[2]);
        fflush(stdout);
    }
    for (int drop = 0; ok && drop < DROPS; drop++) {
        ok = accepted(endpoint, config, mr, descriptor, &conn) && followed(conn, mr, DROP_AFTER);
        /* The connection is dropped: the client's open operations fail. */
        ok = OK(rpma_conn_delete(&conn)) && ok;
        printf("dropped connection %d; there are %" PRIu64 " numbers\n", drop + 1,
               atomic_load(&memory.count));
    }
    ok = ok && accepted(endpoint, config, mr, descriptor, &conn) && followed(conn, mr, NUMBERS + 1) &&
         happened(conn, RPMA_CONN_CLOSED) && OK(rpma_conn_disconnect(conn));

    /* Checks that no number is missing, and that none came twice. */
    for (uint64_t i = 0; ok && i < NUMBERS; i++) {
        ok = memory.numbers[i] == i + 1;
    }
    if (ok) {
        printf("all %d numbers are there, in their order\n", NUMBERS);
    } else {
        fprintf(stderr, "server: there are %" PRIu64 " numbers (expected: 1 to %d in their order)\n",
                atomic_load(&memory.count), NUMBERS);
    }

    /* The objects are deleted in the reverse order of their creation. Deleting NULL does nothing. */
    ok = OK(rpma_conn_delete(&conn)) && ok;
    ok = OK(rpma_ep_shutdown(&endpoint)) && ok;
    ok = OK(rpma_conn_cfg_delete(&config)) && ok;
    ok = OK(rpma_mr_dereg(&mr)) && ok;
    ok = OK(rpma_peer_delete(&peer)) && ok;
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
