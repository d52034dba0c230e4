// SPDX-License-Identifier: BSD-3-Clause
// What every fuzz target uses: invariants that end the program, and an input read as a series of choices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace fuzz {

// Not an assert: it holds in every build.
inline void require(bool holds, const char *invariant) {
    if (!holds) {
        std::fprintf(stderr, "INVARIANT BROKEN: %s\n", invariant);
        std::abort();
    }
}

// An input, from which one choice after another is taken; all zero when it is used up.
class Choices {
public:
    explicit Choices(std::span<const std::byte> input) : input_{input} {}

    [[nodiscard]] bool left() const { return !input_.empty(); }
    [[nodiscard]] std::uint8_t byte() { return static_cast<std::uint8_t>(number(1)); }
    [[nodiscard]] std::uint16_t word() { return static_cast<std::uint16_t>(number(2)); }
    [[nodiscard]] std::uint32_t stag() { return static_cast<std::uint32_t>(number(4)); }
    [[nodiscard]] std::uint64_t address() { return number(8); }
    [[nodiscard]] bool flag() { return (byte() & 1) != 0; }
    // Up to `size` bytes, borrowed.
    [[nodiscard]] std::span<const std::byte> bytes(std::size_t size) {
        const auto head = input_.first(std::min(size, input_.size()));
        input_ = input_.subspan(head.size());
        return head;
    }

private:
    // Big endian, so that an input reads like the wire.
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
