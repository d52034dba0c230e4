/* SPDX-License-Identifier: BSD-3-Clause */
/* compat: first_program DEVICE [GID_INDEX]: the program with which the field's manuals begin. Two processes
 * open the device and make a reliable queue pair each; over a socket they tell each other its number, their
 * key, their address, and their LID or, with an index, their GID. One sends; the other one receives, reads
 * and writes. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../require.h"

enum { SIZE = 32, PATIENCE_S = 60 };

static const char greeting[SIZE] = "a message of the server";
static const char of_server[SIZE] = "what the client reads";
static const char of_client[SIZE] = "what the client writes";

#define CHECK(call) require((errno = (call)) == 0, #call)

struct name {
    uint64_t address;
    uint32_t key;
    uint32_t number;
    uint16_t lid;
    union ibv_gid gid;
};

static struct {
    int socket;
    int gid_index; /* -1: by LID */
    struct ibv_context *context;
    struct ibv_pd *domain;
    struct ibv_cq *completions;
    struct ibv_mr *region;
    struct ibv_qp *qp;
    struct name there;
    char bytes[SIZE];
} end;

static void swap(const void *own, void *other, size_t size) {
    REQUIRE(send(end.socket, own, size, 0) == (ssize_t)size);
    REQUIRE(recv(end.socket, other, size, MSG_WAITALL) == (ssize_t)size);
}

static void meet(void) {
    char byte = 0;
    swap(&byte, &byte, 1);
}

static void open_device(const char *name) {
    struct ibv_device **const list = ibv_get_device_list(NULL);
    REQUIRE(list != NULL);
    for (int i = 0; list[i] != NULL; ++i) {
        if (strcmp(ibv_get_device_name(list[i]), name) == 0) {
            end.context = ibv_open_device(list[i]);
        }
    }
    ibv_free_device_list(list);
    REQUIRE(end.context != NULL);
}

static void create_objects(void) {
    end.domain = ibv_alloc_pd(end.context);
    REQUIRE(end.domain != NULL);
    end.completions = ibv_create_cq(end.context, 1, NULL, NULL, 0);
    REQUIRE(end.completions != NULL);
    end.region = ibv_reg_mr(end.domain, end.bytes, SIZE,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    REQUIRE(end.region != NULL);
    struct ibv_qp_init_attr wanted = {.qp_type = IBV_QPT_RC,
                                      .sq_sig_all = 1,
                                      .send_cq = end.completions,
                                      .recv_cq = end.completions,
                                      .cap = {1, 1, 1, 1, 0}};
    end.qp = ibv_create_qp(end.domain, &wanted);
    REQUIRE(end.qp != NULL);
}

static struct ibv_sge all_bytes(void) {
    return (struct ibv_sge){.addr = (uintptr_t)end.bytes, .length = SIZE, .lkey = end.region->lkey};
}

static void post_receive(void) {
    struct ibv_sge into = all_bytes();
    struct ibv_recv_wr request = {.sg_list = &into, .num_sge = 1};
    struct ibv_recv_wr *bad = NULL;
    CHECK(ibv_post_recv(end.qp, &request, &bad));
}

static void post(enum ibv_wr_opcode opcode) {
    struct ibv_sge part = all_bytes();
    struct ibv_send_wr request = {.sg_list = &part,
                                  .num_sge = 1,
                                  .opcode = opcode,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .wr.rdma = {.remote_addr = end.there.address, .rkey = end.there.key}};
    struct ibv_send_wr *bad = NULL;
    CHECK(ibv_post_send(end.qp, &request, &bad));
}

static void expect_completion(void) {
    struct ibv_wc completion;
    int polled = 0;
    while ((polled = ibv_poll_cq(end.completions, 1, &completion)) == 0) {
    }
    REQUIRE(polled == 1 && completion.status == IBV_WC_SUCCESS);
}

static void tell_names(void) {
    struct ibv_port_attr port;
    CHECK(ibv_query_port(end.context, 1, &port));
    struct name here = {
        .address = (uintptr_t)end.bytes, .key = end.region->rkey, .number = end.qp->qp_num, .lid = port.lid};
    if (end.gid_index >= 0) {
        CHECK(ibv_query_gid(end.context, 1, end.gid_index, &here.gid));
    }
    swap(&here, &end.there, sizeof(here));
}

static void connect_queue_pair(bool receives_first) {
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
    CHECK(ibv_modify_qp(end.qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    if (receives_first) {
        post_receive();
    }
    struct ibv_qp_attr receives = {.qp_state = IBV_QPS_RTR,
                                   .path_mtu = IBV_MTU_256,
                                   .dest_qp_num = end.there.number,
                                   .max_dest_rd_atomic = 1,
                                   .min_rnr_timer = 0x12,
                                   .ah_attr = {.dlid = end.there.lid, .port_num = 1}};
    if (end.gid_index >= 0) {
        receives.ah_attr.is_global = 1;
        receives.ah_attr.grh.dgid = end.there.gid;
        receives.ah_attr.grh.sgid_index = (uint8_t)end.gid_index;
        receives.ah_attr.grh.hop_limit = 1;
    }
    CHECK(ibv_modify_qp(end.qp, &receives,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    struct ibv_qp_attr sends = {
        .qp_state = IBV_QPS_RTS, .timeout = 0x12, .retry_cnt = 6, .rnr_retry = 0, .max_rd_atomic = 1};
    CHECK(ibv_modify_qp(end.qp, &sends,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC));
    meet();
}

static void destroy_objects(void) {
    CHECK(ibv_destroy_qp(end.qp));
    CHECK(ibv_dereg_mr(end.region));
    CHECK(ibv_destroy_cq(end.completions));
    CHECK(ibv_dealloc_pd(end.domain));
    CHECK(ibv_close_device(end.context));
}

static void run(const char *device, bool is_server) {
    alarm(PATIENCE_S);
    open_device(device);
    create_objects();
    tell_names();
    connect_queue_pair(!is_server);
    if (is_server) {
        memcpy(end.bytes, greeting, SIZE);
        post(IBV_WR_SEND);
        expect_completion();
        memcpy(end.bytes, of_server, SIZE);
        meet(); /* the client may read */
        meet(); /* it has written */
        REQUIRE(memcmp(end.bytes, of_client, SIZE) == 0);
    } else {
        expect_completion();
        REQUIRE(memcmp(end.bytes, greeting, SIZE) == 0);
        meet();
        post(IBV_WR_RDMA_READ);
        expect_completion();
        REQUIRE(memcmp(end.bytes, of_server, SIZE) == 0);
        memcpy(end.bytes, of_client, SIZE);
        post(IBV_WR_RDMA_WRITE);
        expect_completion();
        meet();
    }
    destroy_objects();
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: %s DEVICE [GID_INDEX]\n", argv[0]);
        return 2;
    }
    end.gid_index = argc == 3 ? atoi(argv[2]) : -1;
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    end.socket = pair[child == 0];
    REQUIRE(close(pair[child != 0]) == 0);
    run(argv[1], child == 0);
    if (child != 0) {
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}
