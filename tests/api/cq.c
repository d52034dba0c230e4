/* SPDX-License-Identifier: BSD-3-Clause */
/* cq: tests how a program waits for completions and collects them. */
#include "ends.h"

static struct rpma_cq *client_cq(const struct ends *ends) {
    struct rpma_cq *cq = NULL;
    assert_ok(rpma_conn_get_cq(ends->client, &cq));
    return cq;
}

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_cq *const cq = anything();
    struct ibv_wc wc[2];
    int got = 7;
    int fd = -7;
    assert_code(rpma_cq_get_fd(NULL, &fd), RPMA_E_INVAL);
    assert_code(rpma_cq_get_fd(cq, NULL), RPMA_E_INVAL);
    assert_code(rpma_cq_wait(NULL), RPMA_E_INVAL);
    assert_code(rpma_cq_get_wc(NULL, 1, wc, &got), RPMA_E_INVAL);
    assert_code(rpma_cq_get_wc(cq, 1, NULL, &got), RPMA_E_INVAL);
    assert_code(rpma_cq_get_wc(cq, 0, wc, &got), RPMA_E_INVAL);
    assert_code(rpma_cq_get_wc(cq, -1, wc, &got), RPMA_E_INVAL);
    assert_code(rpma_cq_get_wc(cq, 2, wc, NULL), RPMA_E_INVAL);
    assert_int_equal(got, 7);
    assert_int_equal(fd, -7);
}

static void nothing_to_collect(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *const cq = client_cq(ends);
    struct ibv_wc wc;
    int got = 7;
    int fd = -1;
    assert_code(rpma_cq_get_wc(cq, 1, &wc, &got), RPMA_E_NO_COMPLETION);
    assert_int_equal(got, 7);
    assert_ok(rpma_cq_get_fd(cq, &fd));
    make_non_blocking(fd);
    assert_code(rpma_cq_wait(cq), RPMA_E_NO_COMPLETION);
    assert_int_equal(logged_lines(), 0);
}

static void completion_makes_the_fd_readable_once_armed(void **state) {
    struct ends *ends = *state;
    struct rpma_cq *const cq = client_cq(ends);
    struct ibv_wc wc;
    int fd = -1;
    assert_ok(rpma_cq_get_fd(cq, &fd));
    for (uintptr_t i = 1; i <= 3; ++i) {
        assert_ok(rpma_write(ends->client, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, (void *)i));
        await_readable(fd);
        assert_ok(rpma_cq_wait(cq));
        assert_ok(rpma_cq_get_wc(cq, 1, &wc, NULL));
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.wr_id, i);
        assert_code(rpma_cq_get_wc(cq, 1, &wc, NULL), RPMA_E_NO_COMPLETION);
    }
}

static void several_are_collected_in_order(void **state) {
    struct ends *ends = *state;
    struct ibv_wc wc[8];
    int collected = 0;
    for (uintptr_t i = 0; i < 5; ++i) {
        assert_ok(rpma_write(ends->client, NULL, 0, NULL, 0, 0, RPMA_F_COMPLETION_ALWAYS, (void *)i));
    }
    while (collected < 5) {
        int got = 0;
        const int result = rpma_cq_get_wc(client_cq(ends), 8 - collected, wc + collected, &got);
        assert_true(result == 0 || result == RPMA_E_NO_COMPLETION);
        collected += got;
    }
    for (int i = 0; i < 5; ++i) {
        assert_int_equal(wc[i].wr_id, i);
        assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
    }
    assert_code(rpma_cq_get_wc(client_cq(ends), 8, wc, &collected), RPMA_E_NO_COMPLETION);
}

/* A size above INT_MAX counts as INT_MAX, which is more than the device takes. */
static void queue_can_be_too_large(void **state) {
    struct ends *ends = *state;
    struct rpma_conn_req *request = anything();
    assert_ok(rpma_conn_cfg_set_cq_size(ends->cfg, UINT32_MAX));
    assert_code(rpma_conn_req_new(ends->peer, ADDRESS, ends->port, ends->cfg, &request), RPMA_E_PROVIDER);
    assert_ptr_equal(request, anything());
    assert_true(logged("ibv_create_cq", "2147483647", NULL));
}

#define WITH_CONNECTION(test) cmocka_unit_test_setup_teardown(test, make_connection, end_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        WITH_CONNECTION(nothing_to_collect),
        WITH_CONNECTION(completion_makes_the_fd_readable_once_armed),
        WITH_CONNECTION(several_are_collected_in_order),
        WITH_CONNECTION(queue_can_be_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
