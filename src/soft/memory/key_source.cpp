// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/key_source.hpp"

#include <sys/random.h>

#include <bit>
#include <tuple>
#include <utility>

namespace soft {

void KeySource::renew() {
    while (getrandom(&secret_, sizeof(secret_), 0) != sizeof(secret_)) {
    }
}

// Beaulieu and others, "The Simon and Speck Families of Lightweight Block Ciphers", 2013. The keys of the
// rounds come from the same function as the rounds.
std::uint32_t KeySource::encrypted(std::uint32_t block, const Secret &secret) {
    constexpr unsigned rounds = 22;
    const auto mix = [](std::uint16_t high, std::uint16_t low, unsigned with) {
        high = static_cast<std::uint16_t>((std::rotr(high, 7) + low) ^ with);
        return std::pair{high, static_cast<std::uint16_t>(std::rotl(low, 2) ^ high)};
    };
    std::array more{secret[1], secret[2], secret[3]};
    std::uint16_t key = secret[0];
    auto high = static_cast<std::uint16_t>(block >> 16);
    auto low = static_cast<std::uint16_t>(block);
    for (unsigned round = 0; round < rounds; ++round) {
        std::tie(high, low) = mix(high, low, key);
        std::uint16_t &next = more[round % more.size()];
        std::tie(next, key) = mix(next, key, round);
    }
    return std::uint32_t{high} << 16 | low;
}

}  // namespace soft
