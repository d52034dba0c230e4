// SPDX-License-Identifier: BSD-3-Clause
// Random tests take their random numbers here, from a seed.
#pragma once

#include <cstdint>
#include <random>

namespace test {

class Dice {
public:
    explicit Dice(std::uint64_t seed) : engine_{seed} {}
    // Returns 0 to limit - 1.
    std::uint64_t below(std::uint64_t limit) { return engine_() % limit; }
    bool chance(unsigned percent) { return below(100) < percent; }
    std::uint64_t any() { return engine_(); }

private:
    std::mt19937_64 engine_;
};

}  // namespace test
