/* SPDX-License-Identifier: BSD-3-Clause */
/* out_of_memory: tests each function that makes an object, when there is no memory for the object. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "ends.h"

/* Replaces the C++ library's operator new(std::nothrow), for one object and for several,
 * in the whole process. librpma's allocation with this number, counted from 0, fails.
 * None fails when the number is negative. */
#define EVERYWHERE __attribute__((visibility("default")))
static int failing = -1;

typedef void *allocate(size_t size, const void *tag);
static void *allocated(const char *name, size_t size, const void *tag, const void *caller) {
    Dl_info library = {0};
    void *const found = dlsym(RTLD_NEXT, name);
    allocate *next = NULL;
    memcpy(&next, &found, sizeof(next));
    const bool counts = dladdr(caller, &library) != 0 && strstr(library.dli_fname, "librpma.so") != NULL;
    return counts && failing >= 0 && failing-- == 0 ? NULL : next(size, tag);
}

allocate _ZnwmRKSt9nothrow_t;
EVERYWHERE void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag) {
    return allocated("_ZnwmRKSt9nothrow_t", size, tag, __builtin_return_address(0));
}

allocate _ZnamRKSt9nothrow_t;
EVERYWHERE void *_ZnamRKSt9nothrow_t(size_t size, const void *tag) {
    return allocated("_ZnamRKSt9nothrow_t", size, tag, __builtin_return_address(0));
}

/* No function needs more allocations. */
#define MOST 20

static void configurations_are_null(void **state) {
    (void)state;
    struct rpma_conn_cfg *conn_cfg = anything();
    struct rpma_srq_cfg *srq_cfg = anything();
    failing = 0;
    assert_code(rpma_conn_cfg_new(&conn_cfg), RPMA_E_NOMEM);
    assert_null(conn_cfg);
    failing = 0;
    assert_code(rpma_srq_cfg_new(&srq_cfg), RPMA_E_NOMEM);
    assert_null(srq_cfg);
}

/* These functions do not write the caller's pointer. */
static void descriptions_are_left_alone(void **state) {
    (void)state;
    const unsigned char descriptor[21] = {[8] = 64, [20] = RPMA_MR_USAGE_READ_SRC};
    struct rpma_peer_cfg *pcfg = anything();
    struct rpma_mr_remote *mr = anything();
    failing = 0;
    assert_code(rpma_peer_cfg_new(&pcfg), RPMA_E_NOMEM);
    failing = 0;
    assert_code(rpma_peer_cfg_from_descriptor(descriptor, 1, &pcfg), RPMA_E_NOMEM);
    failing = 0;
    assert_code(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &mr), RPMA_E_NOMEM);
    assert_ptr_equal(pcfg, anything());
    assert_ptr_equal(mr, anything());
}

static void peers_regions_and_endpoints(void **state) {
    struct ends *ends = *state;
    struct ibv_context *context = NULL;
    struct rpma_peer *peer = anything();
    struct rpma_mr_local *mr = anything();
    struct rpma_ep *ep = anything();
    char port[6];
    assert_ok(rpma_utils_get_ibv_context(ADDRESS, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    failing = 0;
    assert_code(rpma_peer_new(context, &peer), RPMA_E_NOMEM);
    assert_ptr_equal(peer, anything());
    failing = 0;
    assert_code(rpma_mr_reg(ends->peer, ends->near, BUFFER_SIZE, RPMA_MR_USAGE_SEND, &mr), RPMA_E_NOMEM);
    assert_ptr_equal(mr, anything());
    choose_port(port);
    failing = 0;
    assert_code(rpma_ep_listen(ends->peer, ADDRESS, port, &ep), RPMA_E_NOMEM);
    assert_ptr_equal(ep, anything());
    assert_ok(rpma_ep_listen(ends->peer, ADDRESS, port, &ends->ep));
}

static void requests(void **state) {
    struct ends *ends = *state;
    int result = RPMA_E_NOMEM;
    assert_ok(rpma_conn_cfg_set_rcq_size(ends->cfg, 4));
    for (int n = 0; n < MOST && result != 0; ++n) {
        ends->request = anything();
        failing = n;
        result = rpma_conn_req_new(ends->peer, ADDRESS, ends->port, ends->cfg, &ends->request);
        if (result != 0) {
            assert_ptr_equal(ends->request, anything());
            ends->request = NULL;
            assert_int_equal(result, RPMA_E_NOMEM);
            assert_true(n < MOST - 1);
        }
    }
    failing = -1;
    assert_ok(result);
}

/* The device tells the peer that asked. */
static void incoming_requests(void **state) {
    struct ends *ends = *state;
    const struct rpma_conn_private_data data = {"data", 4};
    int result = RPMA_E_NOMEM;
    for (int n = 0; n < MOST && result != 0; ++n) {
        ask(ends, NULL, &data);
        failing = n;
        result = rpma_ep_next_conn_req(ends->ep, NULL, &ends->request);
        failing = -1;
        if (result != 0) {
            assert_int_equal(result, RPMA_E_NOMEM);
            assert_null(ends->request);
            await_event(ends->client, RPMA_CONN_REJECTED);
            assert_ok(rpma_conn_delete(&ends->client));
        }
    }
    assert_ok(result);
}

static void answers(void **state) {
    struct ends *ends = *state;
    int result = RPMA_E_NOMEM;
    for (int n = 0; n < MOST && result != 0; ++n) {
        ask(ends, NULL, NULL);
        assert_ok(rpma_ep_next_conn_req(ends->ep, NULL, &ends->request));
        failing = n;
        result = rpma_conn_req_connect(&ends->request, NULL, &ends->server);
        failing = -1;
        assert_null(ends->request);
        if (result != 0) {
            assert_int_equal(result, RPMA_E_NOMEM);
            assert_null(ends->server);
            await_event(ends->client, RPMA_CONN_REJECTED);
            assert_ok(rpma_conn_delete(&ends->client));
        }
    }
    assert_ok(result);
    await_established(ends);
}

static void private_data_of_the_answer(void **state) {
    struct ends *ends = *state;
    const struct rpma_conn_private_data data = {"data", 4};
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    ask(ends, NULL, NULL);
    answer(ends, NULL, &data);
    failing = 0;
    assert_code(rpma_conn_next_event(ends->client, &event), RPMA_E_NOMEM);
    assert_int_equal(event, RPMA_CONN_UNDEFINED);
}

#define WITH_PEER(test) cmocka_unit_test_setup_teardown(test, make_peer, end_all)
#define WITH_ENDPOINT(test) cmocka_unit_test_setup_teardown(test, make_endpoint, end_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configurations_are_null), cmocka_unit_test(descriptions_are_left_alone),
        WITH_PEER(peers_regions_and_endpoints),    WITH_ENDPOINT(requests),
        WITH_ENDPOINT(incoming_requests),          WITH_ENDPOINT(answers),
        WITH_ENDPOINT(private_data_of_the_answer),
    };
    failing = 0;
    struct rpma_peer_cfg *pcfg = NULL;
    if (rpma_peer_cfg_new(&pcfg) == 0) {
        /* memcheck has replaced the allocator already. */
        print_message("the allocator cannot be replaced here\n");
        rpma_peer_cfg_delete(&pcfg);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
