/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests peers and memory on a device of the kernel:
 * librpma's calls, and the results of failures. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "kernel_device.h"

#define FLUSH_GLOBAL (UINT64_C(1) << 38)
#define FLUSH_PERSISTENT (UINT64_C(1) << 39)
#define ATOMIC_WRITE (UINT64_C(1) << 40)

static char memory[64];

/* ---- abilities ---- */

static int odp_capable(void) {
    int capable = 7;
    assert_ok(rpma_utils_ibv_context_is_odp_capable(&kernel.verbs.context, &capable));
    return capable;
}

static void on_demand_paging_needs_writes_and_reads(void **state) {
    (void)state;
    struct ibv_odp_caps *const odp = &kernel.attributes.odp_caps;
    assert_int_equal(odp_capable(), 0);
    odp->general_caps = IBV_ODP_SUPPORT;
    assert_int_equal(odp_capable(), 0);
    odp->per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_WRITE;
    assert_int_equal(odp_capable(), 0);
    odp->per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_READ;
    assert_int_equal(odp_capable(), 0);
    odp->per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE;
    assert_int_equal(odp_capable(), 1);
    odp->general_caps = 0;
    assert_int_equal(odp_capable(), 0);
}

static void device_that_does_not_answer(void **state) {
    (void)state;
    struct rpma_peer *peer = anything();
    int capable = 7;
    let_fail("ibv_query_device_ex", EIO);
    assert_code(rpma_utils_ibv_context_is_odp_capable(&kernel.verbs.context, &capable), RPMA_E_PROVIDER);
    assert_int_equal(capable, 0);
    assert_code(rpma_peer_new(&kernel.verbs.context, &peer), RPMA_E_PROVIDER);
    assert_ptr_equal(peer, anything());
    assert_true(logged("ibv_query_device_ex", "remembering0", "Input/output error", NULL));
    assert_null(strstr(kernel.calls, "ibv_alloc_pd"));
}

static void peer_code(int number, int code) {
    struct rpma_peer *peer = anything();
    let_fail("ibv_alloc_pd", number);
    assert_code(rpma_peer_new(&kernel.verbs.context, &peer), code);
    assert_ptr_equal(peer, anything());
}

static void protection_domain_fails(void **state) {
    (void)state;
    peer_code(ENOMEM, RPMA_E_NOMEM);
    peer_code(EAGAIN, RPMA_E_PROVIDER);
    peer_code(0, RPMA_E_UNKNOWN);
}

/* The peer is gone even when the device keeps its part of it. */
static void failed_delete_deletes(void **state) {
    (void)state;
    struct rpma_peer *peer = kernel_peer();
    let_fail("ibv_dealloc_pd", EBUSY);
    assert_code(rpma_peer_delete(&peer), RPMA_E_PROVIDER);
    assert_null(peer);
    assert_true(logged("ibv_dealloc_pd", NULL));
}

static void missing_native_operations_are_logged(void **state) {
    (void)state;
    struct rpma_peer *peer = kernel_peer();
    assert_true(logged("remembering0", "has no native flush", "has no native atomic write", NULL));
    assert_ok(rpma_peer_delete(&peer));
    kernel.attributes.device_cap_flags_ex = ATOMIC_WRITE;
    peer = kernel_peer();
    assert_true(logged("remembering0", "has no native flush", "has native atomic write", NULL));
    assert_ok(rpma_peer_delete(&peer));
}

/* ---- access ---- */

static int access_for(int usage) {
    struct rpma_peer *peer = kernel_peer();
    struct rpma_mr_local *mr = NULL;
    kernel.registrations = 0;
    assert_ok(rpma_mr_reg(peer, memory, sizeof(memory), usage, &mr));
    assert_int_equal(kernel.registrations, 1);
    assert_ok(rpma_mr_dereg(&mr));
    assert_ok(rpma_peer_delete(&peer));
    return kernel.access[0];
}

static void each_usage_has_its_access(void **state) {
    (void)state;
    const int write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    assert_int_equal(access_for(RPMA_MR_USAGE_READ_SRC), IBV_ACCESS_REMOTE_READ);
    assert_int_equal(access_for(RPMA_MR_USAGE_READ_DST), IBV_ACCESS_LOCAL_WRITE);
    assert_int_equal(access_for(RPMA_MR_USAGE_WRITE_SRC), 0);
    assert_int_equal(access_for(RPMA_MR_USAGE_WRITE_DST), write);
    assert_int_equal(access_for(RPMA_MR_USAGE_SEND), 0);
    assert_int_equal(access_for(RPMA_MR_USAGE_RECV), IBV_ACCESS_LOCAL_WRITE);
    assert_int_equal(access_for(RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY), IBV_ACCESS_REMOTE_READ);
    assert_int_equal(access_for(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT), IBV_ACCESS_REMOTE_READ);
    assert_int_equal(access_for(0xff), write | IBV_ACCESS_REMOTE_READ);
    kernel.device.transport_type = IBV_TRANSPORT_IWARP;
    assert_int_equal(access_for(RPMA_MR_USAGE_READ_DST), write);
    assert_int_equal(access_for(RPMA_MR_USAGE_RECV), IBV_ACCESS_LOCAL_WRITE);
}

/* librpma does not ask for flush access when the loaded library could not post a flush. It asks for read
 * access in either case, for peers that flush by reading. */
static void flush_access_grants_reading(void **state) {
    (void)state;
    kernel.attributes.device_cap_flags_ex = FLUSH_GLOBAL | FLUSH_PERSISTENT;
    assert_true((access_for(RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY) & IBV_ACCESS_REMOTE_READ) != 0);
    assert_true((access_for(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT) & IBV_ACCESS_REMOTE_READ) != 0);
}

/* ---- registration ---- */

static void refuses_region(struct rpma_peer *peer) {
    struct rpma_mr_local *mr = anything();
    assert_code(rpma_mr_reg(peer, memory, sizeof(memory), RPMA_MR_USAGE_WRITE_DST, &mr), RPMA_E_PROVIDER);
    assert_ptr_equal(mr, anything());
}

static void memory_that_cannot_be_pinned_is_paged_on_demand(void **state) {
    (void)state;
    kernel.attributes.odp_caps.general_caps = IBV_ODP_SUPPORT;
    kernel.attributes.odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE;
    struct rpma_peer *peer = kernel_peer();
    struct rpma_mr_local *mr = NULL;
    let_fail("ibv_reg_mr", EOPNOTSUPP);
    kernel.failures = 1;
    assert_ok(rpma_mr_reg(peer, memory, sizeof(memory), RPMA_MR_USAGE_READ_SRC, &mr));
    assert_int_equal(kernel.registrations, 2);
    assert_int_equal(kernel.access[0], IBV_ACCESS_REMOTE_READ);
    assert_int_equal(kernel.access[1], IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
    assert_ok(rpma_mr_dereg(&mr));
    /* librpma tries on demand for this one reason only. */
    kernel.registrations = 0;
    let_fail("ibv_reg_mr", EINVAL);
    refuses_region(peer);
    assert_int_equal(kernel.registrations, 1);
    /* Registering on demand fails as well. */
    kernel.registrations = 0;
    let_fail("ibv_reg_mr", EOPNOTSUPP);
    refuses_region(peer);
    assert_int_equal(kernel.registrations, 2);
    assert_ok(rpma_peer_delete(&peer));
}

static void without_on_demand_paging_the_log_says_so(void **state) {
    (void)state;
    struct rpma_peer *peer = kernel_peer();
    let_fail("ibv_reg_mr", EOPNOTSUPP);
    refuses_region(peer);
    assert_int_equal(kernel.registrations, 1);
    assert_true(logged("ibv_reg_mr", "64 bytes", "remembering0", "Operation not supported", NULL));
    assert_true(logged("on-demand paging", "DAX", "cannot be pinned", NULL));
    assert_ok(rpma_peer_delete(&peer));
}

static void limit_of_pinned_memory_is_named(void **state) {
    (void)state;
    struct rpma_peer *peer = kernel_peer();
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const struct rlimit lower = {.rlim_cur = 12288, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &lower), 0);
    let_fail("ibv_reg_mr", ENOMEM);
    refuses_region(peer);
    setrlimit(RLIMIT_MEMLOCK, &before);
    assert_true(logged("64 bytes", "12288", "RLIMIT_MEMLOCK", "ulimit -l", "LimitMEMLOCK", NULL));
    assert_ok(rpma_peer_delete(&peer));
}

static void failed_deregistration_forgets_the_region(void **state) {
    (void)state;
    struct rpma_peer *peer = kernel_peer();
    struct rpma_mr_local *mr = NULL;
    assert_ok(rpma_mr_reg(peer, memory, sizeof(memory), RPMA_MR_USAGE_SEND, &mr));
    let_fail("ibv_dereg_mr", EBUSY);
    assert_code(rpma_mr_dereg(&mr), RPMA_E_PROVIDER);
    assert_null(mr);
    assert_ok(rpma_peer_delete(&peer));
}

/* ---- advice ---- */

static void advice_code(struct rpma_mr_local *mr, int number, int code) {
    let_fail("ibv_advise_mr", number);
    assert_code(rpma_mr_advise(mr, 8, 16, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH),
                code);
}

static void advice_is_passed_on(void **state) {
    (void)state;
    struct rpma_peer *peer = kernel_peer();
    struct rpma_mr_local *mr = NULL;
    assert_ok(rpma_mr_reg(peer, memory, sizeof(memory), RPMA_MR_USAGE_WRITE_DST, &mr));
    advice_code(mr, 0, 0);
    assert_true(kernel.advised.addr == (uintptr_t)memory + 8);
    assert_int_equal(kernel.advised.length, 16);
    assert_int_equal(kernel.advised.lkey, 100);
    advice_code(mr, EOPNOTSUPP, RPMA_E_NOSUPP);
    advice_code(mr, ENOTSUP, RPMA_E_NOSUPP);
    advice_code(mr, EFAULT, RPMA_E_INVAL);
    advice_code(mr, EINVAL, RPMA_E_INVAL);
    advice_code(mr, ENOMEM, RPMA_E_PROVIDER);
    /* Only the lower 32 bits of a length count. */
    let_fail(NULL, 0);
    assert_ok(rpma_mr_advise(mr, 0, (UINT64_C(1) << 32) + 5, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                             IBV_ADVISE_MR_FLAG_FLUSH));
    assert_int_equal(kernel.advised.length, 5);
    assert_ok(rpma_mr_dereg(&mr));
    assert_ok(rpma_peer_delete(&peer));
}

#define TEST(test) cmocka_unit_test_setup(test, make_kernel_device)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(on_demand_paging_needs_writes_and_reads),
        TEST(device_that_does_not_answer),
        TEST(protection_domain_fails),
        TEST(failed_delete_deletes),
        TEST(missing_native_operations_are_logged),
        TEST(each_usage_has_its_access),
        TEST(flush_access_grants_reading),
        TEST(memory_that_cannot_be_pinned_is_paged_on_demand),
        TEST(without_on_demand_paging_the_log_says_so),
        TEST(limit_of_pinned_memory_is_named),
        TEST(failed_deregistration_forgets_the_region),
        TEST(advice_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
