// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/refusal: why a segment of the peer's is not served, as a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "soft/wire/violation.hpp"

namespace soft {

struct Refusal {
    enum class Of : std::uint8_t {
        Segment,     // of what the segment at hand says
        Access,      // of memory that the peer may not reach
        KeptMessage  // of a message whose headers are gone
    };
    wire::Violation violation;
    Of of = Of::Segment;
    // The body of a read that is refused. g++ asks for the initializer where a Refusal names some members
    // only.
    std::span<const std::byte> read_request{};  // NOLINT(readability-redundant-member-init)
};

template <typename T = void>
using Accepted = std::expected<T, Refusal>;

[[nodiscard]] inline std::unexpected<Refusal> refused(const wire::Violation &violation) {
    return std::unexpected{Refusal{.violation = violation}};
}

}  // namespace soft
