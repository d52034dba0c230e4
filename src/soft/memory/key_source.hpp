// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/key_source: the keys of memory regions. A key is a counter, encrypted with a secret of the
// process. No key comes twice before all 2^32 have come, so a stale key stays invalid. Known keys tell
// nothing about others, so a guess finds one of n regions with a chance of n in 2^32.
#pragma once

#include <array>
#include <cstdint>

namespace soft {

class KeySource {
public:
    using Secret = std::array<std::uint16_t, 4>;

    KeySource() { renew(); }

    [[nodiscard]] std::uint32_t next() { return encrypted(counter_++, secret_); }
    // Makes a new secret in a child process, so that its keys are not the parent's next ones.
    void renew();

    // Encrypts a block with the cipher Speck32/64.
    [[nodiscard]] static std::uint32_t encrypted(std::uint32_t block, const Secret &secret);

private:
    Secret secret_;
    std::uint32_t counter_ = 0;
};

}  // namespace soft
