// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/key_source: the keys of memory regions: a counter, encrypted with a secret of the process. No
// key comes twice before all 2^32 have come, so that a stale one stays dead; and who knows some keys knows
// nothing of the others, so that a guess finds a region of n with a chance of n in 2^32.
#pragma once

#include <array>
#include <cstdint>

namespace soft {

class KeySource {
public:
    using Secret = std::array<std::uint16_t, 4>;

    KeySource() { renew(); }

    [[nodiscard]] std::uint32_t next() { return encrypted(counter_++, secret_); }
    // Another secret, for a child process: its keys are not the parent's next.
    void renew();

    // The block cipher Speck32/64.
    [[nodiscard]] static std::uint32_t encrypted(std::uint32_t block, const Secret &secret);

private:
    Secret secret_;
    std::uint32_t counter_ = 0;
};

}  // namespace soft
