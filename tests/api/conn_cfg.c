/* SPDX-License-Identifier: BSD-3-Clause */
/* conn_cfg: tests the values of a connection configuration and their defaults. */
#include <limits.h>
#include <netinet/in.h>

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
    {rpma_conn_cfg_set_inline_size, rpma_conn_cfg_get_inline_size, 0},
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
    /* A shared receive queue cannot be unset. */
    assert_code(rpma_conn_cfg_set_srq(cfg, NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_cfg_get_srq(cfg, &got));
    assert_ptr_equal(got, anything());
}

static void small_counts(void **state) {
    const struct {
        int (*set)(struct rpma_conn_cfg *cfg, uint8_t count);
        int (*get)(const struct rpma_conn_cfg *cfg, uint8_t *count);
        uint8_t initial;
        uint8_t most;
    } counts[] = {
        {rpma_conn_cfg_set_retry_count, rpma_conn_cfg_get_retry_count, 7, 7},
        {rpma_conn_cfg_set_rnr_retry_count, rpma_conn_cfg_get_rnr_retry_count, 7, 7},
        {rpma_conn_cfg_set_ack_timeout, rpma_conn_cfg_get_ack_timeout, 0, 31},
    };
    struct rpma_conn_cfg *cfg = *state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); ++i) {
        uint8_t got = 77;
        assert_code(counts[i].set(NULL, 1), RPMA_E_INVAL);
        assert_code(counts[i].set(cfg, (uint8_t)(counts[i].most + 1)), RPMA_E_INVAL);
        assert_code(counts[i].get(NULL, &got), RPMA_E_INVAL);
        assert_code(counts[i].get(cfg, NULL), RPMA_E_INVAL);
        assert_int_equal(got, 77);
        assert_ok(counts[i].get(cfg, &got));
        assert_int_equal(got, counts[i].initial);
        for (uint8_t count = 0; count <= counts[i].most; ++count) {
            assert_ok(counts[i].set(cfg, count));
            assert_ok(counts[i].get(cfg, &got));
            assert_int_equal(got, count);
        }
    }
}

static void bounds_check(void **state) {
    struct rpma_conn_cfg *cfg = *state;
    bool got = true;
    assert_code(rpma_conn_cfg_set_bounds_check(NULL, true), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_bounds_check(NULL, &got), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_bounds_check(cfg, NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_cfg_get_bounds_check(cfg, &got));
    assert_false(got);
    assert_ok(rpma_conn_cfg_set_bounds_check(cfg, true));
    assert_ok(rpma_conn_cfg_get_bounds_check(cfg, &got));
    assert_true(got);
}

/* Unlike a shared receive queue, the queues of many connections can be unset. */
static void queues_of_many_connections(void **state) {
    struct rpma_conn_cfg *cfg = *state;
    struct rpma_cq *cq = anything();
    struct rpma_events *events = anything();
    assert_code(rpma_conn_cfg_set_cq(NULL, cq), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_cq(NULL, &cq), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_cq(cfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_set_rcq(NULL, cq), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_rcq(NULL, &cq), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_rcq(cfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_set_events(NULL, events), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_events(NULL, &events), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_events(cfg, NULL), RPMA_E_INVAL);
    for (int is_set = 0; is_set < 2; ++is_set) {
        assert_ok(rpma_conn_cfg_get_cq(cfg, &cq));
        assert_ptr_equal(cq, is_set ? anything() : NULL);
        assert_ok(rpma_conn_cfg_get_rcq(cfg, &cq));
        assert_ptr_equal(cq, is_set ? anything() : NULL);
        assert_ok(rpma_conn_cfg_get_events(cfg, &events));
        assert_ptr_equal(events, is_set ? anything() : NULL);
        assert_ok(rpma_conn_cfg_set_cq(cfg, anything()));
        assert_ok(rpma_conn_cfg_set_rcq(cfg, anything()));
        assert_ok(rpma_conn_cfg_set_events(cfg, anything()));
    }
    assert_ok(rpma_conn_cfg_set_cq(cfg, NULL));
    assert_ok(rpma_conn_cfg_get_cq(cfg, &cq));
    assert_null(cq);
}

static void source_address(void **state) {
    struct rpma_conn_cfg *cfg = *state;
    const struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = 7, .sin_addr.s_addr = 9};
    const struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = 8, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const struct sockaddr other = {.sa_family = AF_UNIX};
    struct sockaddr_storage got;
    assert_code(rpma_conn_cfg_set_source_addr(NULL, (const struct sockaddr *)&v4), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_set_source_addr(cfg, &other), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_source_addr(NULL, &got), RPMA_E_INVAL);
    assert_code(rpma_conn_cfg_get_source_addr(cfg, NULL), RPMA_E_INVAL);
    assert_ok(rpma_conn_cfg_get_source_addr(cfg, &got));
    assert_int_equal(got.ss_family, AF_UNSPEC);
    assert_ok(rpma_conn_cfg_set_source_addr(cfg, (const struct sockaddr *)&v4));
    assert_ok(rpma_conn_cfg_get_source_addr(cfg, &got));
    assert_memory_equal(&got, &v4, sizeof(v4));
    assert_ok(rpma_conn_cfg_set_source_addr(cfg, (const struct sockaddr *)&v6));
    assert_ok(rpma_conn_cfg_get_source_addr(cfg, &got));
    assert_memory_equal(&got, &v6, sizeof(v6));
    assert_ok(rpma_conn_cfg_set_source_addr(cfg, NULL));
    assert_ok(rpma_conn_cfg_get_source_addr(cfg, &got));
    assert_int_equal(got.ss_family, AF_UNSPEC);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_and_delete),
        cmocka_unit_test_setup_teardown(sizes, make, end),
        cmocka_unit_test_setup_teardown(timeout, make, end),
        cmocka_unit_test_setup_teardown(completion_channel, make, end),
        cmocka_unit_test_setup_teardown(shared_receive_queue, make, end),
        cmocka_unit_test_setup_teardown(small_counts, make, end),
        cmocka_unit_test_setup_teardown(bounds_check, make, end),
        cmocka_unit_test_setup_teardown(queues_of_many_connections, make, end),
        cmocka_unit_test_setup_teardown(source_address, make, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
