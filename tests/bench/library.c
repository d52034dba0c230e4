/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_library PORT OPERATIONS: so many 8-byte writes, each with its completion, on one connection to
 * itself, with what librpma 1.2 has: library.sh runs it with Debian's librpma0 and with ours, under
 * callgrind, which counts in measured() only. */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(call)                                                                  \
    do {                                                                               \
        const int result_ = (call);                                                    \
        if (result_ != 0) {                                                            \
            fprintf(stderr, "bench_library: %s: %s\n", #call, rpma_err_2str(result_)); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

static _Alignas(4096) char memory[4096];

/* Not inlined: callgrind knows it by its name. */
__attribute__((noinline)) static void measured(struct rpma_conn *conn, struct rpma_cq *cq,
                                               struct rpma_mr_remote *far, struct rpma_mr_local *near,
                                               long operations) {
    for (long i = 0; i < operations; ++i) {
        struct ibv_wc wc;
        REQUIRE(rpma_write(conn, far, 64, near, 0, 8, RPMA_F_COMPLETION_ALWAYS, NULL));
        int result = rpma_cq_get_wc(cq, 1, &wc, NULL);
        while (result == RPMA_E_NO_COMPLETION) {
            result = rpma_cq_get_wc(cq, 1, &wc, NULL);
        }
        REQUIRE(result);
        REQUIRE(wc.status != IBV_WC_SUCCESS ? RPMA_E_PROVIDER : 0);
    }
}

static void await_established(struct rpma_conn *conn) {
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    REQUIRE(rpma_conn_next_event(conn, &event));
    REQUIRE(event == RPMA_CONN_ESTABLISHED ? 0 : RPMA_E_PROVIDER);
}

int main(int argc, char **argv) {
    const long operations = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (operations <= 0) {
        fprintf(stderr, "usage: bench_library PORT OPERATIONS\n");
        return 2;
    }
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = NULL;
    struct rpma_ep *ep = NULL;
    struct rpma_conn_req *request = NULL;
    struct rpma_conn *client = NULL;
    struct rpma_conn *server = NULL;
    struct rpma_mr_local *mr = NULL;
    struct rpma_mr_remote *far = NULL;
    struct rpma_cq *cq = NULL;
    char descriptor[64];
    size_t size = 0;
    REQUIRE(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    REQUIRE(rpma_peer_new(context, &peer));
    REQUIRE(rpma_ep_listen(peer, "127.0.0.1", argv[1], &ep));
    REQUIRE(rpma_conn_req_new(peer, "127.0.0.1", argv[1], NULL, &request));
    REQUIRE(rpma_conn_req_connect(&request, NULL, &client));
    REQUIRE(rpma_ep_next_conn_req(ep, NULL, &request));
    REQUIRE(rpma_conn_req_connect(&request, NULL, &server));
    await_established(client);
    await_established(server);
    REQUIRE(
        rpma_mr_reg(peer, memory, sizeof(memory), RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST, &mr));
    REQUIRE(rpma_mr_get_descriptor_size(mr, &size));
    REQUIRE(size <= sizeof(descriptor) ? 0 : RPMA_E_NOMEM);
    REQUIRE(rpma_mr_get_descriptor(mr, descriptor));
    REQUIRE(rpma_mr_remote_from_descriptor(descriptor, size, &far));
    REQUIRE(rpma_conn_get_cq(client, &cq));
    measured(client, cq, far, mr, operations);
    REQUIRE(rpma_conn_disconnect(client));
    REQUIRE(rpma_conn_delete(&client));
    REQUIRE(rpma_conn_delete(&server));
    REQUIRE(rpma_mr_remote_delete(&far));
    REQUIRE(rpma_mr_dereg(&mr));
    REQUIRE(rpma_ep_shutdown(&ep));
    REQUIRE(rpma_peer_delete(&peer));
    return 0;
}
