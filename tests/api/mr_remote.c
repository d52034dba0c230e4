/* SPDX-License-Identifier: BSD-3-Clause */
/* mr_remote: tests a remote region from its 21 bytes. */
#include <string.h>

#include "test.h"

#define SIZE 21
#define USAGE 20
/* The descriptor has address 0x0807060504030201, 0x1817161514131211
 * bytes, rkey 0x24232221 and usage READ_SRC. */
static const unsigned char descriptor[SIZE] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07,
                                               0x08, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
                                               0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x01};

static void arguments_are_checked(void **state) {
    (void)state;
    struct rpma_mr_remote *mr = anything();
    size_t size = 7;
    int type = 7;
    assert_code(rpma_mr_remote_from_descriptor(NULL, SIZE, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_remote_from_descriptor(descriptor, SIZE, NULL), RPMA_E_INVAL);
    assert_code(rpma_mr_remote_from_descriptor(descriptor, 0, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_remote_from_descriptor(descriptor, SIZE - 1, &mr), RPMA_E_INVAL);
    assert_code(rpma_mr_remote_get_size(NULL, &size), RPMA_E_INVAL);
    assert_code(rpma_mr_remote_get_size(mr, NULL), RPMA_E_INVAL);
    assert_code(rpma_mr_remote_get_flush_type(NULL, &type), RPMA_E_INVAL);
    assert_code(rpma_mr_remote_get_flush_type(mr, NULL), RPMA_E_INVAL);
    assert_code(rpma_mr_remote_delete(NULL), RPMA_E_INVAL);
    assert_ptr_equal(mr, anything());
    assert_int_equal(size, 7);
    assert_int_equal(type, 7);
}

static void descriptor_is_read(void **state) {
    (void)state;
    struct rpma_mr_remote *mr = NULL;
    size_t size = 0;
    assert_ok(rpma_mr_remote_from_descriptor(descriptor, SIZE, &mr));
    assert_ok(rpma_mr_remote_get_size(mr, &size));
    assert_true(size == 0x1817161514131211);
    assert_ok(rpma_mr_remote_delete(&mr));
    assert_null(mr);
    assert_ok(rpma_mr_remote_delete(&mr));
}

static void more_bytes_are_ignored(void **state) {
    (void)state;
    struct rpma_mr_remote *mr = NULL;
    unsigned char longer[SIZE + 3];
    memset(longer, 0xff, sizeof(longer));
    memcpy(longer, descriptor, SIZE);
    assert_ok(rpma_mr_remote_from_descriptor(longer, sizeof(longer), &mr));
    assert_ok(rpma_mr_remote_delete(&mr));
}

static void region_without_a_use_is_refused(void **state) {
    (void)state;
    struct rpma_mr_remote *mr = anything();
    unsigned char useless[SIZE];
    memcpy(useless, descriptor, SIZE);
    useless[USAGE] = 0;
    assert_code(rpma_mr_remote_from_descriptor(useless, SIZE, &mr), RPMA_E_INVAL);
    assert_ptr_equal(mr, anything());
}

static void flush_types_are_the_usage_bits(void **state) {
    (void)state;
    for (int usage = 1; usage <= 0xff; ++usage) {
        struct rpma_mr_remote *mr = NULL;
        int type = -1;
        unsigned char bytes[SIZE];
        memcpy(bytes, descriptor, SIZE);
        bytes[USAGE] = (unsigned char)usage;
        assert_ok(rpma_mr_remote_from_descriptor(bytes, SIZE, &mr));
        assert_ok(rpma_mr_remote_get_flush_type(mr, &type));
        assert_int_equal(type, usage & 0x30);
        assert_ok(rpma_mr_remote_delete(&mr));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),          cmocka_unit_test(descriptor_is_read),
        cmocka_unit_test(more_bytes_are_ignored),         cmocka_unit_test(region_without_a_use_is_refused),
        cmocka_unit_test(flush_types_are_the_usage_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
