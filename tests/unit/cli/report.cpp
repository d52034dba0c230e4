// SPDX-License-Identifier: BSD-3-Clause
// cli/report: the numbers of a summary.
#include "cli/report.hpp"

#include <numeric>

#include "bytes.hpp"

namespace {

void percentiles_are_nearest_rank(void **) {
    std::vector<double> samples(100);
    std::iota(samples.rbegin(), samples.rend(), 1.0);
    assert_true(cli::percentile(samples, 0.5) == 50);
    assert_true(cli::percentile(samples, 0.99) == 99);
    assert_true(cli::percentile(samples, 1) == 100);
    assert_true(cli::percentile(samples, 0) == 1);
    assert_true(cli::percentile({3, 1, 2}, 0.99) == 3);
    assert_true(cli::percentile({3, 1, 2}, 0.5) == 2);
    assert_true(cli::percentile({7}, 0.5) == 7);
    assert_true(cli::percentile({}, 0.5) == 0);
}

void times_are_shown(void **) {
    assert_string_equal(cli::format_seconds(12.34e-6).c_str(), "12.3 us");
    assert_string_equal(cli::format_seconds(1.5e-3).c_str(), "1.50 ms");
    assert_string_equal(cli::format_seconds(75).c_str(), "75.00 s");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_nearest_rank),
        cmocka_unit_test(times_are_shown),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
