/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_library PORT OPERATIONS: so many 8-byte writes, each with its completion, on one connection to
 * itself, with what librpma 1.2 has: library.sh runs it with Debian's librpma0 and with ours, under
 * callgrind, which counts in measured() only. */
#include "ends.h"

static _Alignas(4096) char memory[4096];

/* Not inlined: callgrind knows it by its name. */
__attribute__((noinline)) static void measured(const struct ends *ends, long operations) {
    for (long i = 0; i < operations; ++i) {
        struct ibv_wc wc;
        CHECK(rpma_write(ends->client, ends->remote, 64, ends->region, 0, 8, RPMA_F_COMPLETION_ALWAYS, NULL));
        int result = rpma_cq_get_wc(ends->cq, 1, &wc, NULL);
        while (result == RPMA_E_NO_COMPLETION) {
            result = rpma_cq_get_wc(ends->cq, 1, &wc, NULL);
        }
        CHECK(result);
        REQUIRE(wc.status == IBV_WC_SUCCESS);
    }
}

int main(int argc, char **argv) {
    const long operations = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (operations <= 0) {
        fprintf(stderr, "usage: bench_library PORT OPERATIONS\n");
        return 2;
    }
    struct ends ends = open_ends("127.0.0.1", argv[1], memory, sizeof(memory),
                                 RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST);
    measured(&ends, operations);
    close_ends(&ends);
    return 0;
}
