/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_cfg: tests the configuration of a peer, and its one-byte descriptor. */
#include "test.h"

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_peer_cfg *pcfg = anything();
    bool supported = true;
    size_t size = 5;
    char descriptor[1] = {7};
    assert_code(rpma_peer_cfg_new(NULL), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_delete(NULL), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_set_direct_write_to_pmem(NULL, true), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_get_direct_write_to_pmem(NULL, &supported), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_get_descriptor(NULL, descriptor), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_get_descriptor(pcfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_get_descriptor_size(NULL, &size), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_get_descriptor_size(pcfg, NULL), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_from_descriptor(NULL, 1, &pcfg), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_from_descriptor(descriptor, 1, NULL), RPMA_E_INVAL);
    assert_code(rpma_peer_cfg_from_descriptor(descriptor, 0, &pcfg), RPMA_E_INVAL);
    assert_ptr_equal(pcfg, anything());
    assert_true(supported);
    assert_int_equal(size, 5);
    assert_int_equal(descriptor[0], 7);
}

static void delete_is_done_once(void **state) {
    (void)state;
    struct rpma_peer_cfg *pcfg = NULL;
    assert_ok(rpma_peer_cfg_delete(&pcfg));
    assert_ok(rpma_peer_cfg_new(&pcfg));
    assert_ok(rpma_peer_cfg_delete(&pcfg));
    assert_null(pcfg);
    assert_ok(rpma_peer_cfg_delete(&pcfg));
}

static void direct_write_is_off_until_declared(void **state) {
    (void)state;
    struct rpma_peer_cfg *pcfg = NULL;
    bool supported = true;
    assert_ok(rpma_peer_cfg_new(&pcfg));
    assert_ok(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, &supported));
    assert_false(supported);
    assert_ok(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true));
    assert_ok(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, &supported));
    assert_true(supported);
    assert_ok(rpma_peer_cfg_delete(&pcfg));
}

static void descriptor_is_one_byte(void **state) {
    (void)state;
    struct rpma_peer_cfg *pcfg = NULL;
    size_t size = 0;
    unsigned char descriptor[2] = {0xee, 0xee};
    assert_ok(rpma_peer_cfg_new(&pcfg));
    assert_ok(rpma_peer_cfg_get_descriptor_size(pcfg, &size));
    assert_int_equal(size, 1);
    assert_ok(rpma_peer_cfg_get_descriptor(pcfg, descriptor));
    assert_int_equal(descriptor[0], 0);
    assert_ok(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true));
    assert_ok(rpma_peer_cfg_get_descriptor(pcfg, descriptor));
    assert_int_equal(descriptor[0], 1);
    assert_int_equal(descriptor[1], 0xee);
    assert_ok(rpma_peer_cfg_delete(&pcfg));
}

/* The byte that is sent is 0 or 1. Any received byte other than 0
 * counts as 1, and bytes after it are ignored. */
static void descriptor_is_read(unsigned char byte, size_t size, bool expected) {
    struct rpma_peer_cfg *pcfg = NULL;
    const unsigned char received[3] = {byte, 0xff, 0xff};
    unsigned char sent = 0xee;
    bool supported = !expected;
    assert_ok(rpma_peer_cfg_from_descriptor(received, size, &pcfg));
    assert_ok(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, &supported));
    assert_int_equal(supported, expected);
    assert_ok(rpma_peer_cfg_get_descriptor(pcfg, &sent));
    assert_int_equal(sent, expected ? 1 : 0);
    assert_ok(rpma_peer_cfg_delete(&pcfg));
}

static void any_byte_is_read(void **state) {
    (void)state;
    descriptor_is_read(0, 1, false);
    descriptor_is_read(0, 3, false);
    descriptor_is_read(1, 1, true);
    descriptor_is_read(0x80, 1, true);
    descriptor_is_read(0xff, 3, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(delete_is_done_once),
        cmocka_unit_test(direct_write_is_off_until_declared),
        cmocka_unit_test(descriptor_is_one_byte),
        cmocka_unit_test(any_byte_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
