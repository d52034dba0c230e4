// SPDX-License-Identifier: BSD-3-Clause
// cli/histogram: the results that come from the classes.
#include "cli/histogram.hpp"

#include <cmath>

namespace cli {

double Histogram::mean() const {
    return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
}

std::uint64_t Histogram::percentile(double share) const {
    const auto rank = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_)));
    std::uint64_t seen = 0;
    for (std::size_t index = 0; index < classes; ++index) {
        seen += counts_[index];
        if (seen >= std::max<std::uint64_t>(rank, 1)) {
            return std::clamp(first_of(index + 1) - 1, least_, most_);
        }
    }
    return most_;
}

std::vector<Histogram::Step> Histogram::steps() const {
    std::vector<Step> steps;
    std::size_t index = 0;
    for (std::uint64_t decade = 1; index < classes; decade *= 10) {
        for (const std::uint64_t factor : {1U, 2U, 5U}) {
            Step step{factor == 1 && decade == 1 ? 0 : factor * decade,
                      (factor == 2 ? 5 : 2 * factor) * decade, 0};
            while (index < classes && first_of(index) < step.to) {
                step.count += counts_[index++];
            }
            if (step.count > 0 || !steps.empty()) {
                steps.push_back(step);
            }
        }
    }
    while (!steps.empty() && steps.back().count == 0) {
        steps.pop_back();
    }
    return steps;
}

}  // namespace cli
