/* SPDX-License-Identifier: BSD-3-Clause */
/* compat: a program that opens libibverbs and librdmacm itself, and takes their functions by version, as NCCL
 * does, finds those of the soft device, and the real ones of those that take no object. A queue pair of it
 * that is connected to itself writes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* verbs.h has macros of these names. */
#undef ibv_query_port
#undef ibv_reg_mr

static void *opened(const char *name) {
    void *const handle = dlopen(name, RTLD_NOW);
    if (handle == NULL) {
        fail_msg("%s", dlerror());
    }
    return handle;
}

static void *function(void *handle, const char *name, const char *version) {
    void *const found = dlvsym(handle, name, version);
    if (found == NULL) {
        fail_msg("%s: %s", name, dlerror());
    }
    return found;
}

#define FIND(name, version) \
    __typeof__(&name) const own_##name = (__typeof__(&name))function(handle, #name, version)

static void bring_to_rts(int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int), struct ibv_qp *qp) {
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT,
                                     .port_num = 1,
                                     .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
    assert_int_equal(
        modify(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = qp->qp_num;
    attributes.ah_attr.port_num = 1;
    assert_int_equal(modify(qp, &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                     0);
    attributes.qp_state = IBV_QPS_RTS;
    assert_int_equal(modify(qp, &attributes,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

static void functions_by_version(void **state) {
    (void)state;
    static const char *const names[] = {"libibverbs.so", "libibverbs.so.1"};
    void *handle = opened(names[1]);
    FIND(ibv_get_device_list, "IBVERBS_1.1");
    FIND(ibv_free_device_list, "IBVERBS_1.1");
    FIND(ibv_get_device_name, "IBVERBS_1.1");
    FIND(ibv_open_device, "IBVERBS_1.1");
    FIND(ibv_close_device, "IBVERBS_1.1");
    FIND(ibv_query_port, "IBVERBS_1.1");
    FIND(ibv_query_gid, "IBVERBS_1.1");
    FIND(ibv_alloc_pd, "IBVERBS_1.1");
    FIND(ibv_dealloc_pd, "IBVERBS_1.1");
    FIND(ibv_reg_mr, "IBVERBS_1.1");
    FIND(ibv_dereg_mr, "IBVERBS_1.1");
    FIND(ibv_create_cq, "IBVERBS_1.1");
    FIND(ibv_destroy_cq, "IBVERBS_1.1");
    FIND(ibv_create_qp, "IBVERBS_1.1");
    FIND(ibv_modify_qp, "IBVERBS_1.1");
    FIND(ibv_destroy_qp, "IBVERBS_1.1");
    FIND(ibv_event_type_str, "IBVERBS_1.1");
    FIND(ibv_fork_init, "IBVERBS_1.1");
    static const char *const others[] = {"ibv_get_async_event", "ibv_ack_async_event", "ibv_query_device",
                                         "ibv_query_qp"};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); ++i) {
        (void)function(handle, others[i], "IBVERBS_1.1");
    }
    (void)function(handle, "ibv_reg_mr_iova2", "IBVERBS_1.8");
    (void)function(handle, "ibv_query_ece", "IBVERBS_1.10");
    (void)function(handle, "ibv_set_ece", "IBVERBS_1.10");
    (void)function(handle, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
    assert_non_null(own_ibv_event_type_str(IBV_EVENT_QP_FATAL));
    assert_int_equal(own_ibv_fork_init(), 0);

    struct ibv_device **const list = own_ibv_get_device_list(NULL);
    assert_non_null(list);
    struct ibv_context *context = NULL;
    for (size_t i = 0; list[i] != NULL; ++i) {
        if (strcmp(own_ibv_get_device_name(list[i]), "soft_lo") == 0) {
            context = own_ibv_open_device(list[i]);
        }
    }
    own_ibv_free_device_list(list);
    assert_non_null(context);
    struct ibv_port_attr port;
    memset(&port, 0, sizeof(port));
    assert_int_equal(own_ibv_query_port(context, 1, (struct _compat_ibv_port_attr *)&port), 0);
    assert_int_equal(port.state, IBV_PORT_ACTIVE);
    union ibv_gid gid;
    assert_int_equal(own_ibv_query_gid(context, 1, 0, &gid), 0);

    struct ibv_pd *const pd = own_ibv_alloc_pd(context);
    assert_non_null(pd);
    uint64_t memory[2] = {0x1234, 0};
    struct ibv_mr *const mr =
        own_ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    assert_non_null(mr);
    struct ibv_cq *const cq = own_ibv_create_cq(context, 4, NULL, NULL, 0);
    assert_non_null(cq);
    struct ibv_qp_init_attr wanted = {.send_cq = cq,
                                      .recv_cq = cq,
                                      .cap = {.max_send_wr = 1, .max_send_sge = 1},
                                      .qp_type = IBV_QPT_RC,
                                      .sq_sig_all = 1};
    struct ibv_qp *const qp = own_ibv_create_qp(pd, &wanted);
    assert_non_null(qp);
    bring_to_rts(own_ibv_modify_qp, qp);
    struct ibv_sge from = {.addr = (uintptr_t)&memory[0], .length = sizeof(memory[0]), .lkey = mr->lkey};
    struct ibv_send_wr request = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    request.wr.rdma.remote_addr = (uintptr_t)&memory[1];
    request.wr.rdma.rkey = mr->rkey;
    struct ibv_send_wr *bad = NULL;
    assert_int_equal(ibv_post_send(qp, &request, &bad), 0);
    struct ibv_wc completion;
    while (ibv_poll_cq(cq, 1, &completion) == 0) {
    }
    assert_int_equal(completion.status, IBV_WC_SUCCESS);
    while (__atomic_load_n(&memory[1], __ATOMIC_ACQUIRE) == 0) {
        (void)ibv_poll_cq(cq, 1, &completion);
    }
    assert_int_equal(memory[1], 0x1234);
    assert_int_equal(own_ibv_destroy_qp(qp), 0);
    assert_int_equal(own_ibv_destroy_cq(cq), 0);
    assert_int_equal(own_ibv_dereg_mr(mr), 0);
    assert_int_equal(own_ibv_dealloc_pd(pd), 0);
    assert_int_equal(own_ibv_close_device(context), 0);
    /* A name without a number is in the package of headers alone; the handle is the same. */
    handle = opened(names[0]);
    assert_ptr_equal(dlsym(handle, "ibv_open_device"), (void *)own_ibv_open_device);
}

static void the_connection_manager(void **state) {
    (void)state;
    void *const handle = opened("librdmacm.so.1");
    FIND(rdma_create_event_channel, "RDMACM_1.0");
    FIND(rdma_destroy_event_channel, "RDMACM_1.0");
    FIND(rdma_create_id, "RDMACM_1.0");
    FIND(rdma_destroy_id, "RDMACM_1.0");
    struct rdma_event_channel *const channel = own_rdma_create_event_channel();
    assert_non_null(channel);
    struct rdma_cm_id *id = NULL;
    assert_int_equal(own_rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(own_rdma_destroy_id(id), 0);
    own_rdma_destroy_event_channel(channel);
}

static void others_open_as_before(void **state) {
    (void)state;
    assert_null(dlopen("libno-such-library.so.1", RTLD_NOW));
    assert_non_null(strstr(dlerror(), "libno-such-library.so.1"));
    void *const self = dlopen(NULL, RTLD_NOW);
    assert_non_null(self);
    assert_non_null(dlsym(self, "malloc"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_by_version),
        cmocka_unit_test(the_connection_manager),
        cmocka_unit_test(others_open_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
