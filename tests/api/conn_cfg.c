/* SPDX-License-Identifier: BSD-3-Clause */
/* conn_cfg: the values of a connection configuration and their defaults. */
#include <limits.h>

#include "test.h"

struct size_accessor {
    int (*set)(struct rpma_conn_cfg *cfg, uint32_t size);
    int (*get)(const struct rpma_conn_cfg *cfg, uint32_t *size);
    uint32_t initial;
};

static const struct size_accessor size_accessors[] = {
    {rpma_conn_cfg_set_cq_size, rpma_conn_cfg_get_cq_size, 10},
    {rpma_conn_cfg_set_rcq_size, rpma_conn_cfg_get_rcq_size, 0},
    {rpma_conn_cfg_set_sq_size, rpma_conn_cfg_get_sq_size, 10},
    {rpma_conn_cfg_set_rq_size, rpma_conn_cfg_get_rq_size, 10},
};
#define SIZE_ACCESSORS (sizeof(size_accessors) / sizeof(size_accessors[0]))

static int make(void **state) {
    return rpma_conn_cfg_new((struct rpma_conn_cfg **)state);
}
static int end(void **state) {
    return rpma_conn_cfg_delete((struct rpma_conn_cfg **)state);
}

static void new_and_delete(void **state) {
    (void)state;
    struct rpma_conn_cfg *cfg = NULL;
    assert_code(rpma_conn_cfg_new(NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_delete(NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_cfg_delete(&cfg));
    assert_ok(rpma_conn_cfg_new(&cfg));
    assert_ok(rpma_conn_cfg_delete(&cfg));
    assert_null(cfg);
    assert_ok(rpma_conn_cfg_delete(&cfg));
}

static void sizes(void **state) {
    struct rpma_conn_cfg *cfg = *state;
    const uint32_t values[] = {0, 1, (uint32_t)INT_MAX + 1, UINT32_MAX};
    for (size_t i = 0; i < SIZE_ACCESSORS; ++i) {
        const struct size_accessor *size = &size_accessors[i];
        uint32_t got = 77;
        assert_code(size->set(NULL, 1), RPMA_E_INVAL);
        assert_code(size->get(NULL, &got), RPMA_E_INVAL);
        assert_code(size->get(cfg, NULL), RPMA_E_INVAL);
        assert_int_equal(got, 77);
        assert_ok(size->get(cfg, &got));
        assert_int_equal(got, size->initial);
        for (size_t j = 0; j < sizeof(values) / sizeof(values[0]); ++j) {
            assert_ok(size->set(cfg, values[j]));
            assert_ok(size->get(cfg, &got));
            assert_int_equal(got, values[j]);
        }
    }
}

static void timeout(void **state) {
    struct rpma_conn_cfg *cfg = *state;
    int got = 77;
    assert_code(rpma_conn_cfg_set_timeout(NULL, 1), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_set_timeout(cfg, -1), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_timeout(NULL, &got), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_timeout(cfg, NULL), RPMA_E_INVAL);
    assert_int_equal(got, 77);
    assert_ok(rpma_conn_cfg_get_timeout(cfg, &got));
    assert_int_equal(got, RPMA_DEFAULT_TIMEOUT_MS);
    assert_ok(rpma_conn_cfg_set_timeout(cfg, 0));
    assert_ok(rpma_conn_cfg_get_timeout(cfg, &got));
    assert_int_equal(got, 0);
    assert_ok(rpma_conn_cfg_set_timeout(cfg, INT_MAX));
    assert_ok(rpma_conn_cfg_get_timeout(cfg, &got));
    assert_int_equal(got, INT_MAX);
}

static void completion_channel(void **state) {
    struct rpma_conn_cfg *cfg = *state;
    bool got = true;
    assert_code(rpma_conn_cfg_set_compl_channel(NULL, true), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_compl_channel(NULL, &got), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_compl_channel(cfg, NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_cfg_get_compl_channel(cfg, &got));
    assert_false(got);
    assert_ok(rpma_conn_cfg_set_compl_channel(cfg, true));
    assert_ok(rpma_conn_cfg_get_compl_channel(cfg, &got));
    assert_true(got);
}

static void shared_receive_queue(void **state) {
    struct rpma_conn_cfg *cfg = *state;
    struct rpma_srq *got = anything();
    assert_code(rpma_conn_cfg_get_srq(NULL, &got), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_srq(cfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_set_srq(NULL, got), RPMA_E_INVAL);
    assert_ok(rpma_conn_cfg_get_srq(cfg, &got));
    assert_null(got);
    assert_ok(rpma_conn_cfg_set_srq(cfg, anything()));
    /* It cannot be unset. */
    assert_code(rpma_conn_cfg_set_srq(cfg, NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_cfg_get_srq(cfg, &got));
    assert_ptr_equal(got, anything());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_and_delete),
        cmocka_unit_test_setup_teardown(sizes, make, end),
        cmocka_unit_test_setup_teardown(timeout, make, end),
        cmocka_unit_test_setup_teardown(completion_channel, make, end),
        cmocka_unit_test_setup_teardown(shared_receive_queue, make, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
