// SPDX-License-Identifier: BSD-3-Clause
// Every fuzz target uses this header. It ends the program at a broken invariant, and
// reads the input as a series of choices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace fuzz {

// Ends the program when the condition does not hold. Unlike assert() it does so in every build.
inline void require(bool holds, const char *invariant) {
    if (!holds) {
        std::fprintf(stderr, "INVARIANT BROKEN: %s\n", invariant);
        std::abort();
    }
}

// A target takes one choice after another from an input. When the input is used up, each choice is zero.
class Choices {
public:
    explicit Choices(std::span<const std::byte> input) : input_{input} {}

    [[nodiscard]] bool left() const { return !input_.empty(); }
    [[nodiscard]] std::uint8_t byte() { return static_cast<std::uint8_t>(number(1)); }
    [[nodiscard]] std::uint16_t word() { return static_cast<std::uint16_t>(number(2)); }
    [[nodiscard]] std::uint32_t stag() { return static_cast<std::uint32_t>(number(4)); }
    [[nodiscard]] std::uint64_t address() { return number(8); }
    [[nodiscard]] bool flag() { return (byte() & 1) != 0; }
    // Returns up to `size` bytes of the input, borrowed.
    [[nodiscard]] std::span<const std::byte> bytes(std::size_t size) {
        const auto head = input_.first(std::min(size, input_.size()));
        input_ = input_.subspan(head.size());
        return head;
    }

private:
    // The number is big endian, so that an input reads like the wire.
    std::uint64_t number(std::size_t size) {
        std::uint64_t value = 0;
        for (const std::byte one : bytes(size)) {
            value = value << 8 | std::to_integer<std::uint64_t>(one);
        }
        return value;
    }

    std::span<const std::byte> input_;
};

}  // namespace fuzz
