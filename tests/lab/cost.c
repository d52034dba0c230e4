/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cost: what writes and their flush to persistence cost with librpma, on one connection of this process to
 * itself; with what librpma 1.2 has, for Debian's librpma0 and ours (cost.sh).
 *
 *     cost ADDRESS PORT OPERATIONS small|large
 *
 * An operation is one write of 8 bytes and its flush (small), or 8 writes of 128 KiB and one flush of them
 * (large), the wait for their completion and its collection. Prints microseconds for each. callgrind
 * counts in measured() only, and not in the wait.
 */
#include <time.h>

#include "../bench/ends.h"

#define LARGE (128 << 10)
/* The writes and their flush are fewer than the 10 requests that a send queue holds. */
#define SIZE (8 * LARGE)
static _Alignas(4096) char source[LARGE];
static _Alignas(4096) char target[SIZE];

/* It is not inlined, because callgrind knows it by its name. Each operation takes the same path: it waits
 * even for a completion that is there already, whose event comes in any case, and polls once. */
__attribute__((noinline)) static void measured(const struct ends *ends, const struct rpma_mr_local *near,
                                               long operations, size_t writes, size_t size) {
    for (long i = 0; i < operations; ++i) {
        for (size_t place = 0; place < writes * size; place += size) {
            CHECK(rpma_write(ends->client, ends->remote, place, near, 0, size, RPMA_F_COMPLETION_ON_ERROR,
                             NULL));
        }
        CHECK(rpma_flush(ends->client, ends->remote, 0, writes * size, RPMA_FLUSH_TYPE_PERSISTENT,
                         RPMA_F_COMPLETION_ALWAYS, NULL));
        struct ibv_wc wc;
        CHECK(rpma_cq_wait(ends->cq));
        CHECK(rpma_cq_get_wc(ends->cq, 1, &wc, NULL));
        REQUIRE(wc.status == IBV_WC_SUCCESS);
    }
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    const long operations = argc == 5 ? strtol(argv[3], NULL, 10) : 0;
    const int is_large = argc == 5 && strcmp(argv[4], "large") == 0;
    if (operations <= 0 || (!is_large && strcmp(argv[4], "small") != 0)) {
        fprintf(stderr, "usage: cost ADDRESS PORT OPERATIONS small|large\n");
        return 2;
    }
    struct ends ends = open_ends(argv[1], argv[2], target, sizeof(target),
                                 RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
    struct rpma_mr_local *near = NULL;
    struct rpma_peer_cfg *peer_cfg = NULL;
    CHECK(rpma_mr_reg(ends.peer, source, sizeof(source), RPMA_MR_USAGE_WRITE_SRC, &near));
    CHECK(rpma_peer_cfg_new(&peer_cfg));
    CHECK(rpma_peer_cfg_set_direct_write_to_pmem(peer_cfg, true));
    CHECK(rpma_conn_apply_remote_peer_cfg(ends.client, peer_cfg));
    CHECK(rpma_peer_cfg_delete(&peer_cfg));
    const double start = now_us();
    measured(&ends, near, operations, is_large ? SIZE / LARGE : 1, is_large ? LARGE : 8);
    printf("%.1f\n", (now_us() - start) / (double)operations);
    CHECK(rpma_mr_dereg(&near));
    close_ends(&ends);
    return 0;
}
