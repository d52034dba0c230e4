// SPDX-License-Identifier: BSD-3-Clause
// carry/shake: a switch for tests. With RPMA_CARRY_SHAKE=SEED in the environment a sender puts only a part of
// some messages into the ring, so that it goes back to TCP in the middle of them, and leaves some links. The
// decisions follow from the seed and from the count of the bytes that were sent. With RPMA_CARRY_LOSE=N a
// link between two hosts loses its device at the Nth write to the peer's copy. Both are read once.
#pragma once

#include <stdlib.h>

#include <cstddef>
#include <cstdint>

namespace carry {

class Shake {
public:
    // Returns how many bytes of a message go through the ring, from this offset on; without the switch all.
    [[nodiscard]] static std::size_t part_of(std::uint64_t offset, std::size_t bytes) {
        const std::uint64_t value = at(offset);
        return value % 4 == 3 ? (value >> 8) % (bytes + 1) : bytes;
    }
    // Returns whether the sender leaves the link at this offset.
    [[nodiscard]] static bool leaves(std::uint64_t offset) { return at(offset) % 64 == 63; }
    [[nodiscard]] static bool is_on() { return seed() != 0; }
    // Returns whether the device is lost at this write.
    [[nodiscard]] static bool loses(std::uint64_t write) {
        static const std::uint64_t given = number("RPMA_CARRY_LOSE");
        return write == given && given != 0;
    }

private:
    [[nodiscard]] static std::uint64_t number(const char *name) {
        const char *const text = secure_getenv(name);
        return text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
    }
    [[nodiscard]] static std::uint64_t seed() {
        static const std::uint64_t given = number("RPMA_CARRY_SHAKE");
        return given;
    }
    // Returns a number that looks random, and 0 without the switch.
    [[nodiscard]] static std::uint64_t at(std::uint64_t offset) {
        if (!is_on()) {
            return 0;
        }
        std::uint64_t value = (seed() + offset) * 0x9e3779b97f4a7c15;
        value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
        return value ^ (value >> 27);
    }
};

}  // namespace carry
