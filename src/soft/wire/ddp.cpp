// SPDX-License-Identifier: BSD-3-Clause
#include "soft/wire/ddp.hpp"

namespace soft::wire {

namespace {

constexpr std::uint16_t control_versions = control::ddp_version | control::rdmap_version;
constexpr std::uint16_t control_versions_mask = control::ddp_version_mask | control::rdmap_version_mask;

// Returns what is wrong with a control word of another version, or whose opcode does not go with its tagged
// bit.
[[gnu::cold]] Violation wrong_control(std::uint16_t word) {
    const bool tagged = (word & control::tagged) != 0;
    if ((word & control::ddp_version_mask) != control::ddp_version) {
        return {"DDP version other than 1", tagged ? terminate::tagged_version : terminate::untagged_version};
    }
    if ((word & control::rdmap_version_mask) != control::rdmap_version) {
        return {"RDMAP version other than 1", terminate::rdmap_version};
    }
    return {"RDMAP opcode that does not go with the tagged bit", terminate::unexpected_opcode};
}

}  // namespace

Decoded<std::optional<Segment>> decode_header(std::span<const std::byte> bytes) {
    constexpr std::size_t control_end = fpdu_length_bytes + sizeof(std::uint16_t);
    if (bytes.size() < control_end) {
        return std::nullopt;
    }
    // Each reader has a length that is known here, so that no read has to look whether the bytes are there.
    base::Reader begin{bytes.first(control_end)};
    const auto length = begin.big<std::uint16_t>();
    const auto word = begin.big<std::uint16_t>();
    const Opcode opcode{static_cast<std::uint8_t>(word & control::opcode_mask)};
    const bool tagged = is_tagged(opcode);
    if ((word & control_versions_mask) != control_versions || tagged != ((word & control::tagged) != 0)) {
        return NotDecoded{wrong_control(word)};
    }
    const std::size_t header = header_bytes(opcode);
    if (length < header - fpdu_length_bytes) {
        return NotDecoded{{"FPDU shorter than its DDP header", terminate::mpa_frame}};
    }
    if (bytes.size() < header) {
        return std::nullopt;
    }
    Segment segment{.opcode = opcode,
                    .last = (word & control::last) != 0,
                    .payload_bytes = static_cast<std::uint16_t>(length - (header - fpdu_length_bytes))};
    if (tagged) {
        base::Reader rest{bytes.subspan(control_end, tagged_bytes - control_end)};
        segment.stag = rest.big<std::uint32_t>();
        segment.offset = rest.big<std::uint64_t>();
        return segment;
    }
    base::Reader rest{bytes.subspan(control_end, untagged_bytes - control_end)};
    segment.stag = rest.big<std::uint32_t>();
    segment.queue = Queue{rest.big<std::uint32_t>()};
    segment.msn = rest.big<std::uint32_t>();
    segment.offset = rest.big<std::uint32_t>();
    if (segment.queue != queue_of(opcode) && (segment.queue < Queue::FirstShared || !is_of_message(opcode))) {
        return NotDecoded{
            {"untagged segment on a queue that is not its opcode's", terminate::untagged_queue}};
    }
    return segment;
}

}  // namespace soft::wire
