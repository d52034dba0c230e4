/* SPDX-License-Identifier: BSD-3-Clause */
/* srq_cfg: tests the values of a shared receive queue's configuration and their defaults. */
#include "test.h"

static int make(void **state) {
    return rpma_srq_cfg_new((struct rpma_srq_cfg **)state);
}
static int end(void **state) {
    return rpma_srq_cfg_delete((struct rpma_srq_cfg **)state);
}

static void new_and_delete(void **state) {
    (void)state;
    struct rpma_srq_cfg *cfg = NULL;
    assert_code(rpma_srq_cfg_new(NULL), RPMA_E_INVAL);
    assert_code(rpma_srq_cfg_delete(NULL), RPMA_E_INVAL);
    assert_ok(rpma_srq_cfg_delete(&cfg));
    assert_ok(rpma_srq_cfg_new(&cfg));
    assert_ok(rpma_srq_cfg_delete(&cfg));
    assert_null(cfg);
}

static void size(struct rpma_srq_cfg *cfg, int (*set)(struct rpma_srq_cfg *, uint32_t),
                 int (*get)(const struct rpma_srq_cfg *, uint32_t *)) {
    uint32_t got = 77;
    assert_code(set(NULL, 1), RPMA_E_INVAL);
    assert_code(get(NULL, &got), RPMA_E_INVAL);
    assert_code(get(cfg, NULL), RPMA_E_INVAL);
    assert_int_equal(got, 77);
    assert_ok(get(cfg, &got));
    assert_int_equal(got, 20);
    assert_ok(set(cfg, 0));
    assert_ok(get(cfg, &got));
    assert_int_equal(got, 0);
    assert_ok(set(cfg, UINT32_MAX));
    assert_ok(get(cfg, &got));
    assert_int_equal(got, UINT32_MAX);
}

static void sizes(void **state) {
    size(*state, rpma_srq_cfg_set_rq_size, rpma_srq_cfg_get_rq_size);
    size(*state, rpma_srq_cfg_set_rcq_size, rpma_srq_cfg_get_rcq_size);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_and_delete),
        cmocka_unit_test_setup_teardown(sizes, make, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
