// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/rdmap: the bodies of RDMAP messages that are not plain data (RFC 5040 sections 4.4 and 4.8). Each
// follows an untagged DDP header.
//
//     READ REQUEST (28 bytes)                                FLUSH REQUEST (20 bytes, our own)
//      0          4        12     16         20       28      0      4      12       16       20
//     +----------+---------+------+----------+---------+     +------+-------+--------+--------+
//     |sink STag | sink TO | size |source STag|src TO  |     | STag |  TO   | length | level  |
//     +----------+---------+------+----------+---------+     +------+-------+--------+--------+
//     IMMEDIATE DATA (8 bytes, RFC 7306 section 6)
//      0           4          8
//     +-----------+----------+
//     | immediate | reserved |
//     +-----------+----------+
//     TERMINATE (4 bytes, then optionally what it refers to): layer(4) type(4) code(8) M D R rsvd(13)
//
// IMMEDIATE DATA takes a receive. On its own it belongs to the write before it. A send with immediate, which
// no RFC has, is a send whose segments are none of them the last: IMMEDIATE DATA of the same MSN, at the
// offset where the send's bytes end, is its last segment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/wire/violation.hpp"

namespace soft::wire {

inline constexpr std::size_t read_request_bytes = 28;
inline constexpr std::size_t flush_request_bytes = 20;
inline constexpr std::size_t immediate_bytes = 8;
inline constexpr std::size_t terminate_bytes = 4;
inline constexpr std::size_t atomic_write_bytes = 8;

struct ReadRequest {
    std::uint32_t sink_stag;
    std::uint64_t sink_offset;
    std::uint32_t size;
    std::uint32_t source_stag;
    std::uint64_t source_offset;

    friend bool operator==(const ReadRequest &, const ReadRequest &) = default;
};

enum class FlushLevel : std::uint32_t { Visibility = 1, Persistent = 2 };

// Everything this connection wrote before is placed (Visibility) or durable (Persistent), and so is the named
// range.
struct FlushRequest {
    std::uint32_t stag;
    std::uint64_t offset;
    std::uint32_t length;
    FlushLevel level;

    friend bool operator==(const FlushRequest &, const FlushRequest &) = default;
};

[[nodiscard]] std::array<std::byte, read_request_bytes> encode(const ReadRequest &request);
[[nodiscard]] Decoded<ReadRequest> decode_read_request(std::span<const std::byte> body);

[[nodiscard]] std::array<std::byte, flush_request_bytes> encode(const FlushRequest &request);
[[nodiscard]] Decoded<FlushRequest> decode_flush_request(std::span<const std::byte> body);

// Immediate data as verbs has it, four bytes that pass as they are.
using ImmediateValue = std::array<std::byte, 4>;

[[nodiscard]] std::array<std::byte, immediate_bytes> encode(const ImmediateValue &immediate);
[[nodiscard]] Decoded<ImmediateValue> decode_immediate(std::span<const std::byte> body);

[[nodiscard]] std::array<std::byte, terminate_bytes> encode(const TerminateCode &code);
[[nodiscard]] Decoded<TerminateCode> decode_terminate(std::span<const std::byte> body);

}  // namespace soft::wire
