// SPDX-License-Identifier: BSD-3-Clause
// cli/report: tests the numbers of a summary.
#include "cli/report.hpp"

#include "bytes.hpp"

namespace {

void times_are_shown(void **) {
    assert_string_equal(cli::format_seconds(12.34e-6).c_str(), "12.3 us");
    assert_string_equal(cli::format_seconds(1.5e-3).c_str(), "1.50 ms");
    assert_string_equal(cli::format_seconds(75).c_str(), "75.00 s");
}

void progress_fits_the_terminal(void **) {
    constexpr std::uint64_t all = std::uint64_t{1023} << 30;
    for (std::size_t columns = 1; columns <= 200; ++columns) {
        for (const std::uint64_t done : {std::uint64_t{0}, all / 3, all}) {
            assert_true(cli::progress_line(done, all, 0.7, columns).size() < columns);
        }
    }
    assert_true(cli::progress_line(all, all, 1, 200).starts_with("[########"));
    assert_true(cli::progress_line(all / 2, all, 1, 80).starts_with("[#"));
    assert_string_equal(cli::progress_line(1 << 19, 1 << 20, 1, 41).c_str(),
                        " 50%  512.0 KiB of 1.0 MiB  512.0 KiB/s");
    assert_string_equal(cli::progress_line(1 << 19, 1 << 20, 1, 39).c_str(), " 50%  512.0 KiB/s");
    assert_string_equal(cli::progress_line(1 << 19, 1 << 20, 1, 10).c_str(), " 50%");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(times_are_shown),
        cmocka_unit_test(progress_fits_the_terminal),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
