// SPDX-License-Identifier: BSD-3-Clause
#include "soft/wire/ddp.hpp"

#include <cassert>

#include "base/cursor.hpp"

namespace soft::wire {

namespace {

constexpr std::uint16_t control_tagged = 0x8000;
constexpr std::uint16_t control_last = 0x4000;
constexpr std::uint16_t control_ddp_version_mask = 0x0300;
constexpr std::uint16_t control_ddp_version = 0x0100;
constexpr std::uint16_t control_rdmap_version_mask = 0x00c0;
constexpr std::uint16_t control_rdmap_version = 0x0040;
constexpr std::uint16_t control_opcode_mask = 0x000f;

// Returns the queue to which an untagged opcode belongs.
Queue queue_of(Opcode opcode) {
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

Decoded<Opcode> opcode_of(std::uint16_t control) {
    const bool tagged = (control & control_tagged) != 0;
    if ((control & control_ddp_version_mask) != control_ddp_version) {
        return NotDecoded{
            {"DDP version other than 1", tagged ? terminate::tagged_version : terminate::untagged_version}};
    }
    if ((control & control_rdmap_version_mask) != control_rdmap_version) {
        return NotDecoded{{"RDMAP version other than 1", terminate::rdmap_version}};
    }
    const Opcode opcode{static_cast<std::uint8_t>(control & control_opcode_mask)};
    if (is_tagged(opcode) != tagged) {
        return NotDecoded{
            {"RDMAP opcode that does not go with the tagged bit", terminate::unexpected_opcode}};
    }
    return opcode;
}

}  // namespace

Decoded<std::optional<Segment>> decode_header(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto length = reader.big<std::uint16_t>();
    const auto control = reader.big<std::uint16_t>();
    if (!reader.ok()) {
        return std::nullopt;
    }
    const auto opcode = opcode_of(control);
    if (!opcode) {
        return NotDecoded{opcode.error()};
    }
    const std::size_t fixed_bytes = header_bytes(*opcode) - fpdu_length_bytes;
    if (length < fixed_bytes) {
        return NotDecoded{{"FPDU shorter than its DDP header", terminate::mpa_frame}};
    }
    Segment segment;
    segment.opcode = *opcode;
    segment.last = (control & control_last) != 0;
    segment.payload_bytes = static_cast<std::uint16_t>(length - fixed_bytes);
    segment.stag = reader.big<std::uint32_t>();
    if (is_tagged(*opcode)) {
        segment.offset = reader.big<std::uint64_t>();
        return reader.ok() ? std::optional{segment} : std::nullopt;
    }
    const auto queue = reader.big<std::uint32_t>();
    segment.msn = reader.big<std::uint32_t>();
    segment.offset = reader.big<std::uint32_t>();
    if (!reader.ok()) {
        return std::nullopt;
    }
    segment.queue = Queue{queue};
    if (segment.queue != queue_of(*opcode) &&
        (segment.queue < Queue::FirstShared || !is_of_message(*opcode))) {
        return NotDecoded{
            {"untagged segment on a queue that is not its opcode's", terminate::untagged_queue}};
    }
    return segment;
}

std::size_t encode_header(const Segment &segment, std::span<std::byte> bytes) {
    const bool tagged = is_tagged(segment.opcode);
    base::Writer writer{bytes};
    writer.big(static_cast<std::uint16_t>(segment_bytes(segment)));
    writer.big(static_cast<std::uint16_t>((tagged ? control_tagged : 0) | (segment.last ? control_last : 0) |
                                          control_ddp_version | control_rdmap_version |
                                          static_cast<std::uint16_t>(segment.opcode)));
    writer.big(segment.stag);
    if (tagged) {
        writer.big(segment.offset);
    } else {
        const bool named = segment.queue >= Queue::FirstShared;
        writer.big(static_cast<std::uint32_t>(named ? segment.queue : queue_of(segment.opcode)));
        writer.big(segment.msn);
        writer.big(static_cast<std::uint32_t>(segment.offset));
    }
    assert(writer.ok());
    return writer.used();
}

}  // namespace soft::wire
