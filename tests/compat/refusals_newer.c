/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that was linked to a newer libibverbs and librdmacm than those with whose headers this is built
 * (newer_rdma_core.c stands for them). The preload refuses the functions that they got since with an object
 * of ours, in the way that the man page of each says. With an object of theirs the call reaches them.
 */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "newer_rdma_core.h"
#include "refusals.h"

/* Declares `name` under a name of its own, because the headers may declare it. */
#define NEWER(result, name, ...) result newer_##name(__VA_ARGS__) __asm__(#name)
struct of_context { /* an ibv_dmah, an ibv_dm and an ibv_comp_cntr begin so */
    struct ibv_context *context;
};
NEWER(int, ibv_query_gid_type, struct ibv_context *context, uint8_t port, unsigned index, int *type);
NEWER(void *, ibv_alloc_dmah, struct ibv_context *context, void *attributes);
NEWER(int, ibv_dealloc_dmah, struct of_context *handle);
NEWER(void *, ibv_reg_mr_ex, struct ibv_pd *pd, void *attributes);
NEWER(int, ibv_dm_export_dmabuf_fd, struct of_context *memory);
NEWER(int, ibv_query_port_speed, struct ibv_context *context, uint32_t port, uint64_t *speed);
NEWER(void *, ibv_alloc_buf, struct ibv_pd *pd, size_t size, void **buffer);
NEWER(void *, ibv_reg_buf_mr, struct ibv_pd *pd, void *buffer, void *address, size_t length, int access);
NEWER(int, _ibv_query_comp_cntr_caps, struct ibv_context *context, void *capabilities, size_t size);
NEWER(void *, ibv_create_comp_cntr, struct ibv_context *context, void *attributes);
NEWER(int, ibv_destroy_comp_cntr, struct of_context *counter);
NEWER(int, ibv_inc_comp_cntr, struct of_context *counter, uint64_t amount);
NEWER(int, ibv_inc_err_comp_cntr, struct of_context *counter, uint64_t amount);
NEWER(int, ibv_qp_attach_comp_cntr, struct ibv_qp *qp, struct of_context *counter, void *attributes);
NEWER(int, ibv_read_comp_cntr, struct of_context *counter, uint64_t *value);
NEWER(int, ibv_read_err_comp_cntr, struct of_context *counter, uint64_t *value);
NEWER(int, ibv_set_comp_cntr, struct of_context *counter, uint64_t value);
NEWER(int, ibv_set_err_comp_cntr, struct of_context *counter, uint64_t value);
NEWER(int, rdma_query_addrinfo, struct rdma_cm_id *id, struct rdma_addrinfo **info);
NEWER(int, rdma_resolve_addrinfo, struct rdma_cm_id *id, const char *node, const char *service,
      const struct rdma_addrinfo *hints);
NEWER(int, rdma_write_cm_event, struct rdma_cm_id *id, int event, int status, uint64_t argument);

/* Objects of a context, whose other members no refused call looks at. */
struct objects {
    struct ibv_context *context;
    struct ibv_pd pd;
    struct ibv_qp qp;
    struct of_context other;
};

static struct objects objects_of(struct ibv_context *context) {
    const struct objects objects = {.context = context,
                                    .pd = {.context = context},
                                    .qp = {.context = context},
                                    .other = {.context = context}};
    return objects;
}

static struct ibv_context *opened(void) {
    struct ibv_device **const list = ibv_get_device_list(NULL);
    assert_non_null(list);
    assert_non_null(list[0]);
    assert_memory_equal(ibv_get_device_name(list[0]), "soft_", 5);
    struct ibv_context *const context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    assert_non_null(context);
    return context;
}

static void objects_of_ours_are_refused(void **state) {
    (void)state;
    struct objects ours = objects_of(opened());
    uint64_t number = 7;
    void *made = &number;
    assert_null_and_errno(newer_ibv_alloc_dmah(ours.context, &number));
    assert_errno_value(newer_ibv_dealloc_dmah(&ours.other));
    assert_null_and_errno(newer_ibv_reg_mr_ex(&ours.pd, &number));
    assert_minus_one_and_errno(newer_ibv_dm_export_dmabuf_fd(&ours.other));
    assert_errno_value(newer_ibv_query_port_speed(ours.context, 1, &number));
    assert_null_and_errno(newer_ibv_alloc_buf(&ours.pd, 64, &made));
    assert_null_and_errno(newer_ibv_reg_buf_mr(&ours.pd, made, &number, sizeof(number), 0));
    assert_errno_value(newer__ibv_query_comp_cntr_caps(ours.context, &number, sizeof(number)));
    assert_null_and_errno(newer_ibv_create_comp_cntr(ours.context, &number));
    assert_errno_value(newer_ibv_destroy_comp_cntr(&ours.other));
    assert_errno_value(newer_ibv_inc_comp_cntr(&ours.other, 1));
    assert_errno_value(newer_ibv_inc_err_comp_cntr(&ours.other, 1));
    assert_errno_value(newer_ibv_qp_attach_comp_cntr(&ours.qp, &ours.other, &number));
    assert_errno_value(newer_ibv_read_comp_cntr(&ours.other, &number));
    assert_errno_value(newer_ibv_read_err_comp_cntr(&ours.other, &number));
    assert_errno_value(newer_ibv_set_comp_cntr(&ours.other, 1));
    assert_errno_value(newer_ibv_set_err_comp_cntr(&ours.other, 1));
    assert_int_equal(number, 7);
    assert_ptr_equal(made, &number);
    assert_int_equal(ibv_close_device(ours.context), 0);
}

static void objects_of_theirs_reach_them(void **state) {
    (void)state;
    struct ibv_context context = {0};
    struct objects theirs = objects_of(&context);
    uint64_t number = 7;
    void *made = NULL;
    assert_ptr_equal(newer_ibv_alloc_dmah(theirs.context, &number), (void *)REACHED);
    assert_int_equal(newer_ibv_dealloc_dmah(&theirs.other), REACHED);
    assert_ptr_equal(newer_ibv_reg_mr_ex(&theirs.pd, &number), (void *)REACHED);
    assert_int_equal(newer_ibv_dm_export_dmabuf_fd(&theirs.other), REACHED);
    assert_int_equal(newer_ibv_query_port_speed(theirs.context, 1, &number), REACHED);
    assert_ptr_equal(newer_ibv_alloc_buf(&theirs.pd, 64, &made), (void *)REACHED);
    assert_ptr_equal(newer_ibv_reg_buf_mr(&theirs.pd, NULL, NULL, 0, 0), (void *)REACHED);
    assert_int_equal(newer__ibv_query_comp_cntr_caps(theirs.context, &number, sizeof(number)), REACHED);
    assert_ptr_equal(newer_ibv_create_comp_cntr(theirs.context, &number), (void *)REACHED);
    assert_int_equal(newer_ibv_destroy_comp_cntr(&theirs.other), REACHED);
    assert_int_equal(newer_ibv_inc_comp_cntr(&theirs.other, 1), REACHED);
    assert_int_equal(newer_ibv_inc_err_comp_cntr(&theirs.other, 1), REACHED);
    assert_int_equal(newer_ibv_qp_attach_comp_cntr(&theirs.qp, &theirs.other, &number), REACHED);
    assert_int_equal(newer_ibv_read_comp_cntr(&theirs.other, &number), REACHED);
    assert_int_equal(newer_ibv_read_err_comp_cntr(&theirs.other, &number), REACHED);
    assert_int_equal(newer_ibv_set_comp_cntr(&theirs.other, 1), REACHED);
    assert_int_equal(newer_ibv_set_err_comp_cntr(&theirs.other, 1), REACHED);
}

static void ids_are_refused(void **state) {
    (void)state;
    struct rdma_event_channel *const channel = rdma_create_event_channel();
    struct rdma_cm_id *id = NULL;
    struct rdma_addrinfo *info = NULL;
    assert_non_null(channel);
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_minus_one_and_errno(newer_rdma_resolve_addrinfo(id, "127.0.0.1", "7471", NULL));
    assert_minus_one_and_errno(newer_rdma_query_addrinfo(id, &info));
    assert_null(info);
    assert_minus_one_and_errno(newer_rdma_write_cm_event(id, 0, 0, 1));
    assert_int_equal(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
}

/* Each version of libibverbs that changes its private interface gives it another node. */
static void a_private_name_is_ours_in_any_version(void **state) {
    (void)state;
    struct ibv_context *const context = opened();
    int type = -1;
    assert_int_equal(newer_ibv_query_gid_type(context, 1, 0, &type), 0);
    assert_int_equal(type, 0);
    assert_int_equal(ibv_close_device(context), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_of_ours_are_refused),
        cmocka_unit_test(objects_of_theirs_reach_them),
        cmocka_unit_test(ids_are_refused),
        cmocka_unit_test(a_private_name_is_ours_in_any_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
