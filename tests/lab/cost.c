/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cost: what writes and their flush to persistence cost with librpma, on one connection of this process to
 * itself; with what librpma 1.2 has, for Debian's librpma0 and ours (cost.sh).
 *
 *     cost ADDRESS PORT OPERATIONS small|large
 *
 * An operation is one write of 8 bytes and its flush (small), or 8 writes of 128 KiB and one flush of them
 * (large); the next one waits for its completion. Prints microseconds for each. callgrind counts in
 * measured() only.
 */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REQUIRE(call)                                                         \
    do {                                                                      \
        const int result_ = (call);                                           \
        if (result_ != 0) {                                                   \
            fprintf(stderr, "cost: %s: %s\n", #call, rpma_err_2str(result_)); \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

#define LARGE (128 << 10)
/* Fewer than the 10 requests that a send queue holds. */
#define SIZE (8 * LARGE)
static _Alignas(4096) char source[LARGE];
static _Alignas(4096) char target[SIZE];

struct ends {
    struct rpma_conn *conn;
    struct rpma_cq *cq;
    struct rpma_mr_remote *far;
    struct rpma_mr_local *near;
};

/* Waits in the kernel: how often a poller finds nothing would be counted otherwise, and is chance. */
static void complete(struct rpma_cq *cq) {
    struct ibv_wc wc;
    int result = RPMA_E_NO_COMPLETION;
    while (result == RPMA_E_NO_COMPLETION) {
        REQUIRE(rpma_cq_wait(cq));
        result = rpma_cq_get_wc(cq, 1, &wc, NULL);
    }
    REQUIRE(result);
    REQUIRE(wc.status != IBV_WC_SUCCESS ? RPMA_E_PROVIDER : 0);
}

/* Not inlined: callgrind knows it by its name. */
__attribute__((noinline)) static void measured(const struct ends *ends, long operations, size_t writes,
                                               size_t size) {
    for (long i = 0; i < operations; ++i) {
        for (size_t place = 0; place < writes * size; place += size) {
            REQUIRE(rpma_write(ends->conn, ends->far, place, ends->near, 0, size, RPMA_F_COMPLETION_ON_ERROR,
                               NULL));
        }
        REQUIRE(rpma_flush(ends->conn, ends->far, 0, writes * size, RPMA_FLUSH_TYPE_PERSISTENT,
                           RPMA_F_COMPLETION_ALWAYS, NULL));
        complete(ends->cq);
    }
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void await_established(struct rpma_conn *conn) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    REQUIRE(rpma_conn_next_event(conn, &event));
    REQUIRE(event == RPMA_CONN_ESTABLISHED ? 0 : RPMA_E_PROVIDER);
}

int main(int argc, char **argv) {
    const long operations = argc == 5 ? strtol(argv[3], NULL, 10) : 0;
    const int is_large = argc == 5 && strcmp(argv[4], "large") == 0;
    if (operations <= 0 || (!is_large && strcmp(argv[4], "small") != 0)) {
        fprintf(stderr, "usage: cost ADDRESS PORT OPERATIONS small|large\n");
        return 2;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_ep *ep = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *server = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_peer_cfg *peer_cfg = NULL;
    struct ends ends = {NULL, NULL, NULL, NULL};
    char descriptor[64];
    size_t size = 0;
    REQUIRE(rpma_utils_get_ibv_context(argv[1], RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    REQUIRE(rpma_peer_new(context, &peer));
    REQUIRE(rpma_ep_listen(peer, argv[1], argv[2], &ep));
    REQUIRE(rpma_conn_req_new(peer, argv[1], argv[2], NULL, &request));
    REQUIRE(rpma_conn_req_connect(&request, NULL, &ends.conn));
    REQUIRE(rpma_ep_next_conn_req(ep, NULL, &request));
    REQUIRE(rpma_conn_req_connect(&request, NULL, &server));
    await_established(ends.conn);
    await_established(server);
    REQUIRE(rpma_mr_reg(peer, source, sizeof(source), RPMA_MR_USAGE_WRITE_SRC, &ends.near));
    REQUIRE(rpma_mr_reg(peer, target, sizeof(target),
                        RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));
    REQUIRE(rpma_mr_get_descriptor_size(mr, &size));
    REQUIRE(size <= sizeof(descriptor) ? 0 : RPMA_E_NOMEM);
    REQUIRE(rpma_mr_get_descriptor(mr, descriptor));
    REQUIRE(rpma_mr_remote_from_descriptor(descriptor, size, &ends.far));
    REQUIRE(rpma_peer_cfg_new(&peer_cfg));
    REQUIRE(rpma_peer_cfg_set_direct_write_to_pmem(peer_cfg, true));
    REQUIRE(rpma_conn_apply_remote_peer_cfg(ends.conn, peer_cfg));
    REQUIRE(rpma_peer_cfg_delete(&peer_cfg));
    REQUIRE(rpma_conn_get_cq(ends.conn, &ends.cq));
    const double start = now_us();
    measured(&ends, operations, is_large ? SIZE / LARGE : 1, is_large ? LARGE : 8);
    printf("%.1f\n", (now_us() - start) / (double)operations);
    REQUIRE(rpma_conn_disconnect(ends.conn));
    REQUIRE(rpma_conn_disconnect(server));
    REQUIRE(rpma_conn_delete(&ends.conn));
    REQUIRE(rpma_conn_delete(&server));
    REQUIRE(rpma_mr_remote_delete(&ends.far));
    REQUIRE(rpma_mr_dereg(&mr));
    REQUIRE(rpma_mr_dereg(&ends.near));
    REQUIRE(rpma_ep_shutdown(&ep));
    REQUIRE(rpma_peer_delete(&peer));
    return 0;
}
