/* SPDX-License-Identifier: BSD-3-Clause */
/* utils: tests the device of an address, by RPMA_DEVICE, its abilities, and the texts of events. */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log_capture.h"
#include "test.h"

/* RFC 5737 calls these addresses TEST-NET-1. No machine has one. */
#define FOREIGN "192.0.2.1"

static struct ibv_context *untouched(void) {
    return anything();
}

static void arguments_are_checked(void **state) {
    (void)state;
    struct ibv_context *context = untouched();
    int odp = 5;
    assert_code(rpma_utils_get_ibv_context(NULL, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context), RPMA_E_INVAL);
    assert_code(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, NULL), RPMA_E_INVAL);
    assert_code(rpma_utils_get_ibv_context("127.0.0.1", (enum rpma_util_ibv_context_type)2, &context),
                RPMA_E_INVAL);
    assert_ptr_equal(context, untouched());
    assert_code(rpma_utils_ibv_context_is_odp_capable(NULL, &odp), RPMA_E_INVAL);
    assert_code(rpma_utils_ibv_context_is_odp_capable(context, NULL), RPMA_E_INVAL);
    assert_int_equal(odp, 5);
}

static void devices_of_one_kind_are_found(void **state) {
    (void)state;
    struct ibv_context *soft = untouched();
    struct ibv_context *chosen = NULL;
    unsetenv("RPMA_DEVICE");
    assert_code(rpma_utils_get_local_ibv_context(NULL, RPMA_DEVICE_SOFT, &soft), RPMA_E_INVAL);
    assert_code(rpma_utils_get_local_ibv_context("127.0.0.1", RPMA_DEVICE_SOFT, NULL), RPMA_E_INVAL);
    assert_code(rpma_utils_get_local_ibv_context("127.0.0.1", (enum rpma_device_kind)3, &soft), RPMA_E_INVAL);
    assert_code(rpma_utils_get_local_ibv_context(FOREIGN, RPMA_DEVICE_SOFT, &soft), RPMA_E_NOSUPP);
    setenv("RPMA_DEVICE", "kernel", 1);
    assert_code(rpma_utils_get_local_ibv_context("127.0.0.1", RPMA_DEVICE_SOFT, &soft), RPMA_E_NOSUPP);
    setenv("RPMA_DEVICE", "soft", 1);
    assert_code(rpma_utils_get_local_ibv_context("127.0.0.1", RPMA_DEVICE_KERNEL, &soft), RPMA_E_NOSUPP);
    setenv("RPMA_DEVICE", "hard", 1);
    assert_code(rpma_utils_get_local_ibv_context("127.0.0.1", RPMA_DEVICE_SOFT, &soft), RPMA_E_PROVIDER);
    assert_ptr_equal(soft, untouched());
    setenv("RPMA_DEVICE", "soft", 1);
    assert_ok(rpma_utils_get_local_ibv_context("127.0.0.1", RPMA_DEVICE_SOFT, &soft));
    assert_ok(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &chosen));
    assert_ptr_equal(soft, chosen);
}

/* The log has getaddrinfo's own reason, which depends on the machine's resolver. */
static void a_name_that_is_unknown_is_told_as_such(void **state) {
    (void)state;
    struct ibv_context *context = untouched();
    struct addrinfo *found = NULL;
    const int reason = getaddrinfo("absent.invalid", NULL, NULL, &found);
    assert_int_not_equal(reason, 0);
    setenv("RPMA_DEVICE", "soft", 1);
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_utils_get_ibv_context("absent.invalid", RPMA_UTIL_IBV_CONTEXT_REMOTE, &context),
                RPMA_E_PROVIDER);
    assert_true(logged("absent.invalid", gai_strerror(reason), NULL));
}

static void refuses_device(const char *value) {
    struct ibv_context *context = untouched();
    setenv("RPMA_DEVICE", value, 1);
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_code(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context),
                RPMA_E_PROVIDER);
    assert_ptr_equal(context, untouched());
}

static void other_words_for_the_device_are_refused(void **state) {
    (void)state;
    const char *const words[] = {"", "hardware", "Soft", "soft "};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        char quoted[32];
        snprintf(quoted, sizeof(quoted), "\"%s\"", words[i]);
        refuses_device(words[i]);
        assert_true(logged("RPMA_DEVICE", quoted, "auto", "kernel", "soft", NULL));
    }
}

static void kernel_needs_a_kernel_device(void **state) {
    (void)state;
    if (access("/sys/class/infiniband", F_OK) == 0) {
        skip();
    }
    refuses_device("kernel");
    assert_true(logged("RPMA_DEVICE=kernel", "127.0.0.1", NULL));
}

static void serves(const char *device, const char *address, enum rpma_util_ibv_context_type type) {
    struct ibv_context *context = NULL;
    int odp = 5;
    if (device != NULL) {
        setenv("RPMA_DEVICE", device, 1);
    } else {
        unsetenv("RPMA_DEVICE");
    }
    capture_log(RPMA_LOG_LEVEL_NOTICE);
    assert_ok(rpma_utils_get_ibv_context(address, type, &context));
    assert_non_null(context);
    assert_true(logged(address, context->device->name, NULL));
    assert_ok(rpma_utils_ibv_context_is_odp_capable(context, &odp));
    assert_true(odp == 1 || (odp == 0 && strncmp(context->device->name, "soft_", 5) != 0));
}

static void soft_device_serves_loopback(void **state) {
    (void)state;
    const enum rpma_util_ibv_context_type types[] = {RPMA_UTIL_IBV_CONTEXT_LOCAL,
                                                     RPMA_UTIL_IBV_CONTEXT_REMOTE};
    for (size_t i = 0; i < 2; ++i) {
        serves("soft", "127.0.0.1", types[i]);
        serves("soft", "::1", types[i]);
        serves("auto", "127.0.0.1", types[i]);
        serves(NULL, "127.0.0.1", types[i]);
    }
}

static void both_ways_give_one_context(void **state) {
    (void)state;
    struct ibv_context *local = NULL;
    struct ibv_context *remote = NULL;
    setenv("RPMA_DEVICE", "soft", 1);
    assert_ok(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &local));
    assert_ok(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_REMOTE, &remote));
    assert_ptr_equal(local, remote);
}

static void foreign_address_is_not_local(void **state) {
    (void)state;
    const char *const devices[] = {"auto", "soft"};
    for (size_t i = 0; i < 2; ++i) {
        struct ibv_context *context = untouched();
        setenv("RPMA_DEVICE", devices[i], 1);
        capture_log(RPMA_LOG_LEVEL_ERROR);
        assert_code(rpma_utils_get_ibv_context(FOREIGN, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context),
                    RPMA_E_PROVIDER);
        assert_ptr_equal(context, untouched());
        /* The log also says which of this machine's addresses have a device. */
        assert_true(logged(FOREIGN, "as an address of this machine", "127.0.0.1 (soft_lo)", NULL));
    }
}

/* No single device serves all addresses. The look-up succeeds, but its result makes no peer. */
static void wildcard_has_no_device(void **state) {
    (void)state;
    struct ibv_context *context = untouched();
    struct rpma_peer *peer = anything();
    setenv("RPMA_DEVICE", "soft", 1);
    assert_ok(rpma_utils_get_ibv_context("0.0.0.0", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    assert_null(context);
    assert_code(rpma_peer_new(context, &peer), RPMA_E_INVAL);
    assert_ptr_equal(peer, anything());
}

static void each_event_has_its_text(void **state) {
    (void)state;
    assert_string_equal(rpma_utils_conn_event_2str(RPMA_CONN_UNDEFINED), "Undefined connection event");
    assert_string_equal(rpma_utils_conn_event_2str(RPMA_CONN_ESTABLISHED), "Connection established");
    assert_string_equal(rpma_utils_conn_event_2str(RPMA_CONN_CLOSED), "Connection closed");
    assert_string_equal(rpma_utils_conn_event_2str(RPMA_CONN_LOST), "Connection lost");
    assert_string_equal(rpma_utils_conn_event_2str(RPMA_CONN_REJECTED), "Connection rejected");
    assert_string_equal(rpma_utils_conn_event_2str(RPMA_CONN_UNREACHABLE), "Connection unreachable");
    assert_string_equal(rpma_utils_conn_event_2str((enum rpma_conn_event)5), "Unsupported connection event");
    assert_string_equal(rpma_utils_conn_event_2str((enum rpma_conn_event) - 2),
                        "Unsupported connection event");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(devices_of_one_kind_are_found),
        cmocka_unit_test(other_words_for_the_device_are_refused),
        cmocka_unit_test(kernel_needs_a_kernel_device),
        cmocka_unit_test(soft_device_serves_loopback),
        cmocka_unit_test(both_ways_give_one_context),
        cmocka_unit_test(foreign_address_is_not_local),
        cmocka_unit_test(wildcard_has_no_device),
        cmocka_unit_test(a_name_that_is_unknown_is_told_as_such),
        cmocka_unit_test(each_event_has_its_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
