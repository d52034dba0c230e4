// SPDX-License-Identifier: BSD-3-Clause
// This measures the cost of librpma over the verbs that it calls, in instructions: cost.sh runs it under
// callgrind, which counts in measured_ functions only. bench_cost librpma|verbs OPERATIONS: so many 8-byte
// writes, each with its completion, on one connection over the soft device, through librpma or posted to its
// queue pair.
#include <librpma.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "librpma/conn.hpp"
#include "librpma/cq.hpp"
#include "librpma/mr_local.hpp"
#include "librpma/mr_remote.hpp"

namespace {

[[noreturn]] void die(const char *what) {
    std::fprintf(stderr, "bench_cost: %s failed\n", what);
    std::exit(1);
}

void require(int result, const char *what) {
    if (result != 0) {
        die(what);
    }
}
#define REQUIRE(call) require(call, #call)

struct Ends {
    rpma_peer *peer = nullptr;
    rpma_ep *ep = nullptr;
    rpma_conn *client = nullptr;
    rpma_conn *server = nullptr;
    rpma_mr_local *local = nullptr;
    rpma_mr_remote *remote = nullptr;
    rpma_cq *cq = nullptr;
};

alignas(4096) char memory[4096];

void await_established(rpma_conn *conn) {
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    if (rpma_conn_next_event(conn, &event) != 0 || event != RPMA_CONN_ESTABLISHED) {
        die("connecting");
    }
}

Ends connect() {
    Ends ends;
    ibv_context *context = nullptr;
    rpma_ep_cfg *defaults = nullptr;
    rpma_conn_req *request = nullptr;
    sockaddr_storage address{};
    char port[6];
    REQUIRE(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    REQUIRE(rpma_peer_new(context, &ends.peer));
    REQUIRE(rpma_ep_listen_cfg(ends.peer, "127.0.0.1", "0", defaults, &ends.ep));
    REQUIRE(rpma_ep_get_local_addr(ends.ep, &address));
    std::snprintf(port, sizeof(port), "%u",
                  unsigned{ntohs(reinterpret_cast<sockaddr_in &>(address).sin_port)});
    REQUIRE(rpma_conn_req_new(ends.peer, "127.0.0.1", port, nullptr, &request));
    REQUIRE(rpma_conn_req_connect(&request, nullptr, &ends.client));
    REQUIRE(rpma_ep_next_conn_req(ends.ep, nullptr, &request));
    REQUIRE(rpma_conn_req_connect(&request, nullptr, &ends.server));
    await_established(ends.client);
    await_established(ends.server);
    char descriptor[21];
    REQUIRE(rpma_mr_reg(ends.peer, memory, sizeof(memory), RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST,
                        &ends.local));
    REQUIRE(rpma_mr_get_descriptor(ends.local, descriptor));
    REQUIRE(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &ends.remote));
    REQUIRE(rpma_conn_get_cq(ends.client, &ends.cq));
    return ends;
}

void end(Ends &ends) {
    REQUIRE(rpma_conn_delete(&ends.client));
    REQUIRE(rpma_conn_delete(&ends.server));
    REQUIRE(rpma_ep_shutdown(&ends.ep));
    REQUIRE(rpma_mr_remote_delete(&ends.remote));
    REQUIRE(rpma_mr_dereg(&ends.local));
    REQUIRE(rpma_peer_delete(&ends.peer));
}

}  // namespace

extern "C" {

[[gnu::noinline]] void measured_librpma(const Ends &ends, long operations) {
    ibv_wc completion;
    for (long i = 0; i < operations; ++i) {
        REQUIRE(
            rpma_write(ends.client, ends.remote, 64, ends.local, 0, 8, RPMA_F_COMPLETION_ALWAYS, nullptr));
        while (rpma_cq_get_wc(ends.cq, 1, &completion, nullptr) != 0) {
        }
    }
}

// Posts as a program does that knows verbs. It may not rely on requests that are all equal.
[[gnu::noinline]] void measured_verbs(const Ends &ends, long operations) {
    ibv_qp *const qp = ends.client->qp();
    ibv_cq *const cq = ends.cq->get();
    const ibv_sge source = ends.local->part(0, 8);
    const verbs::Remote target = ends.remote->at(64);
    ibv_wc completion;
    for (long i = 0; i < operations; ++i) {
        ibv_sge part = source;
        ibv_send_wr request;
        request.wr_id = 0;
        request.next = nullptr;
        request.sg_list = &part;
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags = IBV_SEND_SIGNALED;
        request.wr.rdma.remote_addr = target.address;
        request.wr.rdma.rkey = target.rkey;
        ibv_send_wr *refused = nullptr;
        REQUIRE(ibv_post_send(qp, &request, &refused));
        while (ibv_poll_cq(cq, 1, &completion) == 0) {
        }
    }
}
}

int main(int argc, char **argv) {
    const long operations = argc == 3 ? std::atol(argv[2]) : 0;
    const bool through_librpma = argc == 3 && std::strcmp(argv[1], "librpma") == 0;
    if (operations <= 0 || (!through_librpma && std::strcmp(argv[1], "verbs") != 0)) {
        std::fprintf(stderr, "usage: %s librpma|verbs OPERATIONS\n", argv[0]);
        return 2;
    }
    Ends ends = connect();
    (through_librpma ? measured_librpma : measured_verbs)(ends, operations);
    end(ends);
    return 0;
}
