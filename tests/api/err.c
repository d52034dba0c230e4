/* SPDX-License-Identifier: BSD-3-Clause */
/* err: tests the texts of return codes, which are as the library has always had them. */
#include "test.h"

static void each_code_has_its_text(void **state) {
    (void)state;
    assert_string_equal(rpma_err_2str(0), "Success");
    assert_string_equal(rpma_err_2str(RPMA_E_UNKNOWN), "Unknown error");
    assert_string_equal(rpma_err_2str(RPMA_E_NOSUPP), "Not supported");
    assert_string_equal(rpma_err_2str(RPMA_E_PROVIDER), "Provider error occurred");
    assert_string_equal(rpma_err_2str(RPMA_E_NOMEM), "Out of memory");
    assert_string_equal(rpma_err_2str(RPMA_E_INVAL), "Invalid argument");
    assert_string_equal(rpma_err_2str(RPMA_E_NO_COMPLETION), "No next completion available");
    assert_string_equal(rpma_err_2str(RPMA_E_NO_EVENT), "No next event available");
    assert_string_equal(rpma_err_2str(RPMA_E_AGAIN), "Temporary error, try again");
    assert_string_equal(rpma_err_2str(RPMA_E_SHARED_CHANNEL), "Completion channel is shared");
    assert_string_equal(rpma_err_2str(RPMA_E_NOT_SHARED_CHNL), "Completion channel is not shared");
}

static void other_values_are_unknown(void **state) {
    (void)state;
    assert_string_equal(rpma_err_2str(1), "Unknown error");
    assert_string_equal(rpma_err_2str(RPMA_E_NOT_SHARED_CHNL - 1), "Unknown error");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_code_has_its_text),
        cmocka_unit_test(other_values_are_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
