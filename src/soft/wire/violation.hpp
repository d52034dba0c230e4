// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/violation: the rule that a peer broke, and the code that tells it so (RFC 5040 section 4.8, RFC
// 5041 section 7.2, RFC 5044).
#pragma once

#include <cstdint>
#include <expected>

namespace soft::wire {

// Layer, error type and error code of a TERMINATE message, in RFC 5040's order: 4 + 4 + 8 bits.
struct TerminateCode {
    std::uint8_t layer;
    std::uint8_t type;
    std::uint8_t code;

    friend bool operator==(const TerminateCode &, const TerminateCode &) = default;
};

namespace terminate {
// Layer 0, RDMAP. Type 0: local catastrophic; 1: remote protection; 2: remote operation.
inline constexpr TerminateCode local_catastrophic{0, 0, 0};
inline constexpr TerminateCode invalid_stag{0, 1, 0};
inline constexpr TerminateCode bounds{0, 1, 1};
inline constexpr TerminateCode access{0, 1, 2};
inline constexpr TerminateCode not_associated{0, 1, 3};
inline constexpr TerminateCode wrap{0, 1, 4};
inline constexpr TerminateCode cannot_invalidate{0, 1, 9};
inline constexpr TerminateCode rdmap_version{0, 2, 5};
inline constexpr TerminateCode unexpected_opcode{0, 2, 6};
inline constexpr TerminateCode catastrophic_stream{0, 2, 7};
inline constexpr TerminateCode operation_unspecified{0, 2, 0xff};
// Layer 1, DDP. Type 1: tagged buffer; 2: untagged buffer.
inline constexpr TerminateCode tagged_invalid_stag{1, 1, 0};
inline constexpr TerminateCode tagged_bounds{1, 1, 1};
inline constexpr TerminateCode tagged_not_associated{1, 1, 2};
inline constexpr TerminateCode tagged_wrap{1, 1, 3};
inline constexpr TerminateCode tagged_version{1, 1, 4};
inline constexpr TerminateCode untagged_queue{1, 2, 1};
inline constexpr TerminateCode untagged_no_buffer{1, 2, 2};
inline constexpr TerminateCode untagged_msn{1, 2, 3};
inline constexpr TerminateCode untagged_offset{1, 2, 4};
inline constexpr TerminateCode untagged_too_long{1, 2, 5};
inline constexpr TerminateCode untagged_version{1, 2, 6};
// Layer 2, the lower layer: MPA.
inline constexpr TerminateCode mpa_crc{2, 0, 2};
inline constexpr TerminateCode mpa_frame{2, 0, 4};
inline constexpr TerminateCode insufficient_ird{2, 0, 6};
inline constexpr TerminateCode no_matching_rtr{2, 0, 7};
}  // namespace terminate

// A rule that the peer broke: the text for the log, the code for the peer.
struct Violation {
    const char *text;
    TerminateCode code;
};

template <typename T>
using Decoded = std::expected<T, Violation>;

using NotDecoded = std::unexpected<Violation>;

}  // namespace soft::wire
