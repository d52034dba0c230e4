// SPDX-License-Identifier: BSD-3-Clause
// cli/random_number: a number that no other process has.
#pragma once

#include <cstdint>
#include <random>

namespace cli {

// Returns 64 random bits of the kernel, and never 0.
[[nodiscard]] inline std::uint64_t random_number() {
    std::random_device random{"/dev/urandom"};
    std::uint64_t number = 0;
    while (number == 0) {
        number = std::uint64_t{random()} << 32 | random();
    }
    return number;
}

}  // namespace cli
