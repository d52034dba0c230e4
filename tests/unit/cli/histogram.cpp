// SPDX-License-Identifier: BSD-3-Clause
// cli/histogram: percentiles agree with those of the sorted samples, within the width of a class.
#include "cli/histogram.hpp"

#include <memory>
#include <random>

#include "bytes.hpp"

namespace {

using std::chrono::nanoseconds;

void small_values_are_exact(void **) {
    cli::Histogram histogram;
    for (int value = 1; value <= 100; ++value) {
        histogram.record(nanoseconds{value});
    }
    assert_int_equal(histogram.count(), 100);
    assert_int_equal(histogram.least(), 1);
    assert_int_equal(histogram.most(), 100);
    assert_true(histogram.mean() == 50.5);
    assert_int_equal(histogram.percentile(0), 1);
    assert_int_equal(histogram.percentile(0.5), 50);
    assert_int_equal(histogram.percentile(0.99), 99);
    assert_int_equal(histogram.percentile(0.991), 100);
    assert_int_equal(histogram.percentile(1), 100);
}

void percentiles_are_those_of_the_sorted_samples(void **) {
    std::mt19937_64 random{4};
    auto histogram = std::make_unique<cli::Histogram>();
    std::vector<std::uint64_t> samples;
    for (int i = 0; i < 100'000; ++i) {
        samples.push_back(random() >> (22 + random() % 42));  // each magnitude as often
        histogram->record(nanoseconds{static_cast<std::int64_t>(samples.back())});
    }
    std::ranges::sort(samples);
    assert_int_equal(histogram->least(), samples.front());
    assert_int_equal(histogram->most(), samples.back());
    for (const double share : {0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
        const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(samples.size())));
        const std::uint64_t exact = samples[rank - 1];
        const std::uint64_t found = histogram->percentile(share);
        assert_in_range(found, exact, exact + exact / 64);
    }
}

void steps_hold_every_sample(void **) {
    cli::Histogram histogram;
    for (const std::int64_t value : {7, 7, 12, 1'500, 4'999'999}) {
        histogram.record(nanoseconds{value});
    }
    const auto steps = histogram.steps();
    assert_int_equal(steps.front().from, 5);
    assert_int_equal(steps.front().to, 10);
    assert_int_equal(steps.front().count, 2);
    assert_int_equal(steps.back().from, 2'000'000);
    assert_int_equal(steps.back().to, 5'000'000);
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        total += steps[i].count;
        assert_true(i == 0 || steps[i].from == steps[i - 1].to);
    }
    assert_int_equal(total, 5);
}

void extremes_are_counted(void **) {
    cli::Histogram histogram;
    assert_int_equal(histogram.percentile(0.5), 0);
    assert_int_equal(histogram.least(), 0);
    assert_true(histogram.mean() == 0 && histogram.steps().empty());
    histogram.record(nanoseconds{-5});  // a clock that went back
    histogram.record(nanoseconds{0});
    histogram.record(nanoseconds::max());
    assert_int_equal(histogram.least(), 0);
    assert_int_equal(histogram.percentile(0.5), 0);
    assert_int_equal(histogram.most(), cli::Histogram::largest);
    assert_int_equal(histogram.percentile(1), cli::Histogram::largest);
    const auto steps = histogram.steps();
    assert_int_equal(steps.front().from, 0);
    assert_int_equal(steps.front().count, 2);
    assert_int_equal(steps.back().count, 1);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(small_values_are_exact),
        cmocka_unit_test(percentiles_are_those_of_the_sorted_samples),
        cmocka_unit_test(steps_hold_every_sample),
        cmocka_unit_test(extremes_are_counted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
