// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/ddp: the header of a DDP segment (RFC 5041 section 4), with the FPDU's length field before it and
// RDMAP's control bits (RFC 5040 section 4.1) inside it.
//
//     tagged (16 bytes)                         untagged (20 bytes)
//      0      2      4        8            16    0      2      4          8    12    16    20
//     +------+------+--------+--------------+   +------+------+----------+-----+-----+-----+
//     |length| ctrl |  STag  |      TO      |   |length| ctrl | reserved | QN  | MSN | MO  |
//     +------+------+--------+--------------+   +------+------+----------+-----+-----+-----+
//     ctrl: T L rsvd(4) DV(2) | RV(2) rsvd(2) opcode(4)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/cursor.hpp"
#include "soft/wire/mpa.hpp"
#include "soft/wire/violation.hpp"

namespace soft::wire {

// RDMAP opcodes: 0 to 7 of RFC 5040, 8 to 11 of RFC 7306, 12 to 15 our own, between two soft devices only.
enum class Opcode : std::uint8_t {
    Write = 0,
    ReadRequest = 1,
    ReadResponse = 2,
    Send = 3,
    SendInvalidate = 4,
    SendSolicited = 5,
    SendSolicitedInvalidate = 6,
    Terminate = 7,
    Immediate = 8,
    ImmediateSolicited = 9,
    AtomicRequest = 10,
    AtomicResponse = 11,
    FlushRequest = 12,
    FlushResponse = 13,
    AtomicWrite = 14,
    Acknowledgement = 15,
};

// Untagged queues: sends, requests that are answered, TERMINATE, answers without a tagged buffer (RFC 7306).
// The messages of an XRC connection name a shared receive queue of the peer here, by its number.
enum class Queue : std::uint32_t { Send = 0, Request = 1, Terminate = 2, Response = 3, FirstShared = 0x100 };

inline constexpr std::size_t tagged_bytes = 16;
inline constexpr std::size_t untagged_bytes = 20;
inline constexpr std::size_t max_segment_bytes = 65535;

// One segment. In a tagged one, stag and offset are STag and TO. In an untagged one, stag is the reserved
// word (the STag to invalidate), and offset is MO.
struct Segment {
    Opcode opcode = Opcode::Write;
    bool last = true;
    std::uint32_t stag = 0;
    std::uint64_t offset = 0;
    Queue queue = Queue::Send;
    std::uint32_t msn = 0;
    std::uint16_t payload_bytes = 0;
};

[[nodiscard]] constexpr bool is_tagged(Opcode opcode) {
    constexpr unsigned all = 1U << static_cast<unsigned>(Opcode::Write) |
                             1U << static_cast<unsigned>(Opcode::ReadResponse) |
                             1U << static_cast<unsigned>(Opcode::AtomicWrite);
    return (all >> static_cast<unsigned>(opcode) & 1) != 0;
}
[[nodiscard]] constexpr bool is_send(Opcode opcode) {
    return opcode >= Opcode::Send && opcode <= Opcode::SendSolicitedInvalidate;
}
// Returns whether Segment::stag is an STag to invalidate.
[[nodiscard]] constexpr bool invalidates(Opcode opcode) {
    return opcode == Opcode::SendInvalidate || opcode == Opcode::SendSolicitedInvalidate;
}
[[nodiscard]] constexpr bool is_immediate(Opcode opcode) {
    return opcode == Opcode::Immediate || opcode == Opcode::ImmediateSolicited;
}
// Returns whether the segment belongs to a message that takes a receive.
[[nodiscard]] constexpr bool is_of_message(Opcode opcode) {
    return is_send(opcode) || is_immediate(opcode);
}
[[nodiscard]] constexpr std::size_t header_bytes(Opcode opcode) {
    return is_tagged(opcode) ? tagged_bytes : untagged_bytes;
}

// Returns the length of a header, from its control word alone.
[[nodiscard]] constexpr std::size_t header_bytes(std::span<const std::byte> bytes) {
    return (bytes[fpdu_length_bytes] & std::byte{0x80}) != std::byte{0} ? tagged_bytes : untagged_bytes;
}

// Returns the length of the segment for the FPDU's length field.
[[nodiscard]] constexpr std::size_t segment_bytes(const Segment &segment) {
    return header_bytes(segment.opcode) - fpdu_length_bytes + segment.payload_bytes;
}
// Returns the length of the whole FPDU: length field, segment, pad, CRC.
[[nodiscard]] constexpr std::size_t fpdu_bytes(const Segment &segment) {
    return fpdu_length_bytes + segment_bytes(segment) + fpdu_trailer_bytes(segment_bytes(segment));
}

// Returns the header at the start of `bytes`; nothing while it is not complete. Checks versions, opcode
// against tagged bit, queue number and length. A message may also name a shared queue. Reserved bits are
// ignored (RFC 5041 section 4.1).
[[nodiscard]] Decoded<std::optional<Segment>> decode_header(std::span<const std::byte> bytes);

// The fields of the control word.
namespace control {
inline constexpr std::uint16_t tagged = 0x8000;
inline constexpr std::uint16_t last = 0x4000;
inline constexpr std::uint16_t ddp_version_mask = 0x0300;
inline constexpr std::uint16_t ddp_version = 0x0100;
inline constexpr std::uint16_t rdmap_version_mask = 0x00c0;
inline constexpr std::uint16_t rdmap_version = 0x0040;
inline constexpr std::uint16_t opcode_mask = 0x000f;
}  // namespace control

// Returns the queue to which an untagged opcode belongs.
[[nodiscard]] constexpr Queue queue_of(Opcode opcode) {
    switch (opcode) {
        case Opcode::ReadRequest:
        case Opcode::AtomicRequest:
        case Opcode::FlushRequest:
            return Queue::Request;
        case Opcode::Terminate:
            return Queue::Terminate;
        case Opcode::AtomicResponse:
        case Opcode::FlushResponse:
        case Opcode::Acknowledgement:
            return Queue::Response;
        default:
            return Queue::Send;
    }
}

// Returns the number of bytes written: header_bytes(segment.opcode). It is inlined, because the way of each
// small request has it.
[[gnu::always_inline]] inline std::size_t encode_header(const Segment &segment, std::span<std::byte> bytes) {
    const bool tagged = is_tagged(segment.opcode);
    base::Writer begin{bytes.first(tagged_bytes)};
    begin.big(static_cast<std::uint16_t>(segment_bytes(segment)));
    begin.big(static_cast<std::uint16_t>((tagged ? control::tagged : 0) | (segment.last ? control::last : 0) |
                                         control::ddp_version | control::rdmap_version |
                                         static_cast<std::uint16_t>(segment.opcode)));
    begin.big(segment.stag);
    if (tagged) {
        begin.big(segment.offset);
        return tagged_bytes;
    }
    const bool named = segment.queue >= Queue::FirstShared;
    base::Writer rest{bytes.subspan(begin.used(), untagged_bytes - tagged_bytes / 2)};
    rest.big(static_cast<std::uint32_t>(named ? segment.queue : queue_of(segment.opcode)));
    rest.big(segment.msn);
    rest.big(static_cast<std::uint32_t>(segment.offset));
    return untagged_bytes;
}

}  // namespace soft::wire
