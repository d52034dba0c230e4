/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that was linked to libibverbs and librdmacm requests what the soft device does not have: each
 * call fails in the way that its man page says, by NULL and errno, -1 and errno, or an errno value; by errno
 * alone when it returns nothing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "refusals.h"

static struct {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char memory[64];
} device;

static int open_device(void **state) {
    (void)state;
    struct ibv_device **const list = ibv_get_device_list(NULL);
    assert_non_null(list);
    assert_non_null(list[0]);
    /* Otherwise the preload is not loaded, and the test would use another device. */
    assert_memory_equal(ibv_get_device_name(list[0]), "soft_", 5);
    device.context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    assert_non_null(device.context);
    device.pd = ibv_alloc_pd(device.context);
    assert_non_null(device.pd);
    device.cq = ibv_create_cq(device.context, 4, NULL, NULL, 0);
    assert_non_null(device.cq);
    device.mr = ibv_reg_mr(device.pd, device.memory, sizeof(device.memory), (int)IBV_ACCESS_LOCAL_WRITE);
    assert_non_null(device.mr);
    return 0;
}

/* The refused calls have not touched the objects, which can be destroyed. */
static int close_device(void **state) {
    (void)state;
    assert_int_equal(ibv_dereg_mr(device.mr), 0);
    assert_int_equal(ibv_destroy_cq(device.cq), 0);
    assert_int_equal(ibv_dealloc_pd(device.pd), 0);
    assert_int_equal(ibv_close_device(device.context), 0);
    return 0;
}

/* The device has this call: a completion queue is resized, but not to no entries. */
static void resizing_is_not_refused(void **state) {
    (void)state;
    assert_int_equal(ibv_resize_cq(device.cq, 8), 0);
    assert_int_equal(device.cq->cqe, 8);
    assert_int_equal(ibv_resize_cq(device.cq, 0), EINVAL);
    assert_int_equal(device.cq->cqe, 8);
}

static void exported_names(void **state) {
    (void)state;
    assert_null_and_errno(ibv_import_device(0));
    assert_null_and_errno(ibv_import_pd(device.context, 0));
    assert_null_and_errno(ibv_import_mr(device.pd, 0));
    assert_null_and_errno(ibv_import_dm(device.context, 0));
    assert_null_and_errno(
        ibv_reg_dmabuf_mr(device.pd, 0, sizeof(device.memory), 0, 0, IBV_ACCESS_LOCAL_WRITE));
}

/* These functions return nothing, and fail by errno. They leave their arguments as they were, for
 * close_device. */
static void exported_names_without_a_result(void **state) {
    (void)state;
    /* An import makes one, so only the context of one is known. */
    struct ibv_dm dm = {.context = device.context};
    assert_errno(ibv_unimport_pd(device.pd));
    assert_errno(ibv_unimport_mr(device.mr));
    assert_errno(ibv_unimport_dm(&dm));
    assert_ptr_equal(dm.context, device.context);
}

static void a_gid_has_no_ethernet_address(void **state) {
    (void)state;
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
    uint8_t mac[6] = {1, 2, 3, 4, 5, 6};
    const uint8_t mac_before[6] = {1, 2, 3, 4, 5, 6};
    uint16_t vid = 7;
    assert_int_equal(ibv_query_gid(device.context, 1, 0, &to.grh.dgid), 0);
    assert_errno_value(ibv_resolve_eth_l2_from_gid(device.context, &to, mac, &vid));
    assert_memory_equal(mac, mac_before, sizeof(mac));
    assert_int_equal(vid, 7);
}

/* verbs.h's inlines look for these in the context. */
static void operations_of_the_context(void **state) {
    (void)state;
    struct ibv_counters_init_attr counters = {0};
    struct ibv_rwq_ind_table_init_attr table = {0};
    struct ibv_modify_cq_attr modify = {.attr_mask = IBV_CQ_ATTR_MODERATE,
                                        .moderate = {.cq_count = 1, .cq_period = 1}};
    struct ibv_wq_init_attr wq = {
        .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = device.pd, .cq = device.cq};
    assert_null_and_errno(ibv_create_counters(device.context, &counters));
    assert_null_and_errno(ibv_create_wq(device.context, &wq));
    assert_null_and_errno(ibv_create_rwq_ind_table(device.context, &table));
    assert_null_and_errno(ibv_alloc_null_mr(device.pd));
    assert_errno_value(ibv_modify_cq(device.cq, &modify));
}

static void queue_pairs(void **state) {
    (void)state;
    struct rdma_event_channel *const channel = rdma_create_event_channel();
    struct rdma_cm_id *id = NULL;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct ibv_ece ece = {.vendor_id = 1, .options = 2, .comp_mask = 0};
    assert_non_null(channel);
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
    assert_minus_one_and_errno(rdma_set_local_ece(id, &ece));
    assert_minus_one_and_errno(rdma_get_remote_ece(id, &ece));
    assert_int_equal(ece.options, 2);

    struct ibv_pd *const pd = ibv_alloc_pd(id->verbs);
    struct ibv_cq *const cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    struct ibv_flow_attr flow = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(flow), .port = 1};
    assert_int_equal(rdma_create_qp(id, pd, &init), 0);
    assert_errno_value(ibv_query_ece(id->qp, &ece));
    assert_errno_value(ibv_set_ece(id->qp, &ece));
    assert_int_equal(ece.options, 2);
    assert_null_and_errno(ibv_create_flow(id->qp, &flow));
    /* The call is a question and no error: 0 means no. */
    assert_int_equal(ibv_query_qp_data_in_order(id->qp, IBV_WR_RDMA_WRITE, 0), 0);

    rdma_destroy_qp(id);
    assert_int_equal(ibv_destroy_cq(cq), 0);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
    assert_int_equal(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resizing_is_not_refused),         cmocka_unit_test(exported_names),
        cmocka_unit_test(exported_names_without_a_result), cmocka_unit_test(a_gid_has_no_ethernet_address),
        cmocka_unit_test(operations_of_the_context),       cmocka_unit_test(queue_pairs),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
