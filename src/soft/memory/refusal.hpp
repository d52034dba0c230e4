// SPDX-License-Identifier: BSD-3-Clause
// soft/memory/refusal: the reason why a segment of the peer is not served, as a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "soft/wire/violation.hpp"

namespace soft {

struct Refusal {
    enum class Of : std::uint8_t {
        Segment,     // of the current segment's content
        Access,      // of an access to memory that the peer may not reach
        KeptMessage  // of a message whose headers are gone
    };
    wire::Violation violation;
    Of of = Of::Segment;
    // The body of a refused read. g++ asks for the initializer where a Refusal names only some members.
    std::span<const std::byte> read_request{};  // NOLINT(readability-redundant-member-init)
};

// The result of serving a segment of the peer, or the reason why it is not served.
template <typename T = void>
using OrRefusal = std::expected<T, Refusal>;

[[nodiscard]] inline std::unexpected<Refusal> make_refusal(const wire::Violation &violation) {
    return std::unexpected{Refusal{.violation = violation}};
}

}  // namespace soft
