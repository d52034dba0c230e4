/* SPDX-License-Identifier: BSD-3-Clause */
/* srq: shared receive queues, as far as a device without them shows. */
#include "ends.h"

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_srq *srq = anything();
    struct rpma_srq *none = NULL;
    struct rpma_cq *rcq = anything();
    assert_code(rpma_srq_new(NULL, NULL, &srq), RPMA_E_INVAL);
    assert_code(rpma_srq_new(anything(), NULL, NULL), RPMA_E_INVAL);
    assert_code(rpma_srq_delete(NULL), RPMA_E_INVAL);
    assert_ok(rpma_srq_delete(&none));
    assert_code(rpma_srq_recv(NULL, anything(), 0, 8, NULL), RPMA_E_INVAL);
    assert_code(rpma_srq_recv(srq, NULL, 1, 0, NULL), RPMA_E_INVAL);
    assert_code(rpma_srq_recv(srq, NULL, 0, 1, NULL), RPMA_E_INVAL);
    assert_code(rpma_srq_get_rcq(NULL, &rcq), RPMA_E_INVAL);
    assert_code(rpma_srq_get_rcq(srq, NULL), RPMA_E_INVAL);
    assert_ptr_equal(srq, anything());
    assert_ptr_equal(rcq, anything());
}

static void device_without_them_says_so(void **state) {
    struct ends *ends = *state;
    struct rpma_srq *srq = anything();
    assert_code(rpma_srq_new(ends->peer, NULL, &srq), RPMA_E_PROVIDER);
    assert_ptr_equal(srq, anything());
    assert_true(logged("ibv_create_srq", "not supported", NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test_setup_teardown(device_without_them_says_so, make_peer, end_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
