/* SPDX-License-Identifier: BSD-3-Clause */
/* peer: tests a protection domain on a device. */
#include "ends.h"

static struct ibv_context *loopback(void) {
    struct ibv_context *context = NULL;
    assert_ok(rpma_utils_get_ibv_context(ADDRESS, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    return context;
}

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_peer *peer = anything();
    assert_code(rpma_peer_new(NULL, &peer), RPMA_E_INVAL);
    assert_code(rpma_peer_new(anything(), NULL), RPMA_E_INVAL);
    assert_code(rpma_peer_delete(NULL), RPMA_E_INVAL);
    assert_ptr_equal(peer, anything());
}

static void delete_is_done_once(void **state) {
    (void)state;
    struct rpma_peer *peer = NULL;
    assert_ok(rpma_peer_delete(&peer));
    assert_ok(rpma_peer_new(loopback(), &peer));
    assert_ok(rpma_peer_delete(&peer));
    assert_null(peer);
    assert_ok(rpma_peer_delete(&peer));
}

static void one_device_has_many_peers(void **state) {
    (void)state;
    struct rpma_peer *peers[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 3; ++i) {
        assert_ok(rpma_peer_new(loopback(), &peers[i]));
    }
    for (int i = 0; i < 3; ++i) {
        assert_ok(rpma_peer_delete(&peers[i]));
    }
}

/* The context outlives the look-up that gave it, and the peers on it. */
static void context_lasts(void **state) {
    (void)state;
    struct ibv_context *const context = loopback();
    struct rpma_peer *peer = NULL;
    for (int i = 0; i < 3; ++i) {
        assert_ptr_equal(loopback(), context);
        assert_ok(rpma_peer_new(context, &peer));
        assert_ok(rpma_peer_delete(&peer));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(delete_is_done_once),
        cmocka_unit_test(one_device_has_many_peers),
        cmocka_unit_test(context_lasts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
