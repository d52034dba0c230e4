// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/rdmap: the bodies of RDMAP messages that are not plain data (RFC 5040 sections 4.4 and 4.8, RFC
// 7306 sections 5 and 6). Each follows an untagged DDP header.
//
//     READ REQUEST (28 bytes)                                FLUSH REQUEST (20 bytes, our own)
//      0          4        12     16         20       28      0      4      12       16       20
//     +----------+---------+------+----------+---------+     +------+-------+--------+--------+
//     |sink STag | sink TO | size |source STag|src TO  |     | STag |  TO   | length | level  |
//     +----------+---------+------+----------+---------+     +------+-------+--------+--------+
//     ATOMIC REQUEST (52 bytes)
//      0          4            8             12           20          28          36        44        52
//     +----------+------------+-------------+------------+-----------+-----------+---------+---------+
//     |operation | identifier | remote STag | remote TO  |add or swap|   mask    | compare |  mask   |
//     +----------+------------+-------------+------------+-----------+-----------+---------+---------+
//     ATOMIC RESPONSE (12 bytes)             IMMEDIATE DATA (8 bytes; verbs has the first four)
//      0            4                12       0           4          8
//     +------------+------------------+      +-----------+----------+
//     | identifier |  original value  |      | immediate | reserved |
//     +------------+------------------+      +-----------+----------+
//     ACKNOWLEDGEMENT (8 bytes, our own)
//      0        4          8
//     +--------+----------+
//     | writes | messages |
//     +--------+----------+
//     TERMINATE (4 bytes, then what it refers to, as M, D and R say)
//      0                            4            6           20 or 24
//     +----------------------------+------------+-----------+---------------------+
//     |layer type code M D R rsvd  | DDP length |DDP header | READ REQUEST's body |
//     | (4)  (4)  (8) 1 1 1  (13)  | (M)        |(D)        | (R)                 |
//     +----------------------------+------------+-----------+---------------------+
//
// IMMEDIATE DATA takes a receive. Alone it belongs to the write before it. A send with immediate, which is in
// no RFC, is a send without a last segment of its own: IMMEDIATE DATA of the same MSN, at the offset of the
// end of the send's bytes, is its last segment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/wire/ddp.hpp"
#include "soft/wire/violation.hpp"

namespace soft::wire {

inline constexpr std::size_t read_request_bytes = 28;
inline constexpr std::size_t flush_request_bytes = 20;
inline constexpr std::size_t atomic_request_bytes = 52;
inline constexpr std::size_t atomic_response_bytes = 12;
inline constexpr std::size_t atomic_bytes = 8;  // of memory
inline constexpr std::size_t immediate_bytes = 8;
inline constexpr std::size_t acknowledgement_bytes = 8;
inline constexpr std::size_t terminate_bytes = 4;
inline constexpr std::size_t terminate_max_bytes = terminate_bytes + untagged_bytes + read_request_bytes;
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

// Asks that all earlier writes of the connection, and the named range, are placed (Visibility) or durable
// (Persistent).
struct FlushRequest {
    std::uint32_t stag;
    std::uint64_t offset;
    std::uint32_t length;
    FlushLevel level;

    friend bool operator==(const FlushRequest &, const FlushRequest &) = default;
};

enum class AtomicOperation : std::uint32_t { FetchAdd = 0, CompareSwap = 2 };

// An operation on 64 bits of memory. The mask of a FetchAdd has the highest bit of each field that is added
// by itself; it is 0 for one field of 64 bits. The masks of a CompareSwap have the bits that are swapped, and
// those that are compared.
struct AtomicRequest {
    AtomicOperation operation = AtomicOperation::FetchAdd;
    std::uint32_t identifier = 0;  // the response has the same
    std::uint32_t stag = 0;
    std::uint64_t offset = 0;
    std::uint64_t add_swap = 0;
    std::uint64_t add_swap_mask = 0;
    std::uint64_t compare = 0;
    std::uint64_t compare_mask = 0;

    friend bool operator==(const AtomicRequest &, const AtomicRequest &) = default;
};
// Returns the new value of the memory when its old value is `original`.
[[nodiscard]] constexpr std::uint64_t result_of(const AtomicRequest &request, std::uint64_t original) {
    const std::uint64_t mask = request.add_swap_mask;
    if (request.operation == AtomicOperation::FetchAdd) {
        // Inside a field the addition carries; it does not carry out of the field's highest bit.
        return ((original & ~mask) + (request.add_swap & ~mask)) ^ ((original ^ request.add_swap) & mask);
    }
    const bool equal = ((original ^ request.compare) & request.compare_mask) == 0;
    return equal ? (original & ~mask) | (request.add_swap & mask) : original;
}

struct AtomicResponse {
    std::uint32_t identifier = 0;
    std::uint64_t original = 0;

    friend bool operator==(const AtomicResponse &, const AtomicResponse &) = default;
};

// Tells how many of the sender's writes are placed, and how many of its messages have their receives, since
// the connection began. Both counts go around.
struct Acknowledgement {
    std::uint32_t writes = 0;    // with and without immediate data, and ATOMIC WRITE
    std::uint32_t messages = 0;  // sends, and immediate data of writes: the last one's MSN

    friend bool operator==(const Acknowledgement &, const Acknowledgement &) = default;
};

[[nodiscard]] std::array<std::byte, read_request_bytes> encode(const ReadRequest &request);
[[nodiscard]] Decoded<ReadRequest> decode_read_request(std::span<const std::byte> body);

[[nodiscard]] std::array<std::byte, flush_request_bytes> encode(const FlushRequest &request);
[[nodiscard]] Decoded<FlushRequest> decode_flush_request(std::span<const std::byte> body);

[[nodiscard]] std::array<std::byte, atomic_request_bytes> encode(const AtomicRequest &request);
[[nodiscard]] Decoded<AtomicRequest> decode_atomic_request(std::span<const std::byte> body);

[[nodiscard]] std::array<std::byte, atomic_response_bytes> encode(const AtomicResponse &response);
[[nodiscard]] Decoded<AtomicResponse> decode_atomic_response(std::span<const std::byte> body);

// Immediate data of verbs: four bytes that are not converted.
using ImmediateValue = std::array<std::byte, 4>;

[[nodiscard]] std::array<std::byte, immediate_bytes> encode(const ImmediateValue &immediate);
[[nodiscard]] Decoded<ImmediateValue> decode_immediate(std::span<const std::byte> body);

[[nodiscard]] std::array<std::byte, acknowledgement_bytes> encode(const Acknowledgement &placed);
[[nodiscard]] Decoded<Acknowledgement> decode_acknowledgement(std::span<const std::byte> body);

[[nodiscard]] std::array<std::byte, terminate_bytes> encode(const TerminateCode &code);
// Encodes the code together with the quoted parts of the message that broke the rule (RFC 5040 figure 10), as
// far as they are given: the FPDU's length field and DDP header, and a READ REQUEST's body. Returns the
// number of bytes written.
std::size_t encode(const TerminateCode &code, std::span<const std::byte> header,
                   std::span<const std::byte> read_request, std::span<std::byte, terminate_max_bytes> bytes);
[[nodiscard]] Decoded<TerminateCode> decode_terminate(std::span<const std::byte> body);
// Returns the meaning of a code from its receiver's view, as a clause: "the peer knows no region with this
// key".
[[nodiscard]] const char *meaning_of(const TerminateCode &code);

}  // namespace soft::wire
