// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "frame_builder.hpp"

#include <algorithm>

#include "soft/wire/rdmap.hpp"

namespace fuzz {

using namespace soft::wire;

namespace {

constexpr Opcode opcodes[FrameBuilder::kinds] = {Opcode::Write,          Opcode::ReadRequest,
                                                 Opcode::ReadResponse,   Opcode::Send,
                                                 Opcode::SendSolicited,  Opcode::FlushRequest,
                                                 Opcode::FlushResponse,  Opcode::AtomicWrite,
                                                 Opcode::Terminate,      Opcode::Write,
                                                 Opcode::AtomicRequest,  Opcode::AtomicResponse,
                                                 Opcode::SendInvalidate, Opcode::SendSolicitedInvalidate};

// This kind takes every field from the input.
constexpr unsigned arbitrary = 9;

enum Twist : unsigned {
    MsnOff = 1,
    OffsetOff = 2,
    NotLast = 4,
    WrongChecksum = 8,
    WrongLength = 16,
    CutShort = 32,
    ReservedBits = 64,
    AsImmediate = 128,  // the end of a send, or a message of its own
};

}  // namespace

FrameBuilder::Place FrameBuilder::place() {
    const unsigned choice = choices_.byte();
    const Area area = Area{static_cast<int>(choice % areas)};
    Place chosen{.key = device_.key(area), .address = device_.address(area)};
    switch (choice / areas % 8) {
        case 0:
            chosen.address += choices_.word() & 0xfff8U;
            break;
        case 1:
            chosen.address += FuzzDevice::size(area) - choices_.byte();
            break;
        case 2:
            chosen.address += FuzzDevice::size(area);
            break;
        case 3:
            chosen.address -= choices_.byte();
            break;
        case 4:
            chosen.key ^= 1U << (choices_.byte() & 31);
            break;
        case 5:
            chosen.key = device_.stale_key();
            break;
        case 6:
            chosen.address = choices_.address();
            break;
        default:
            chosen.key = choices_.stag();
            break;
    }
    return chosen;
}

void FrameBuilder::body(Opcode opcode) {
    const auto put = [this](const auto &bytes) { payload_.assign(bytes.begin(), bytes.end()); };
    switch (opcode) {
        case Opcode::ReadRequest: {
            const Place from = place();
            put(encode(ReadRequest{.sink_stag = 0x77,
                                   .sink_offset = 0x1000,
                                   .size = choices_.word(),
                                   .source_stag = from.key,
                                   .source_offset = from.address}));
            break;
        }
        case Opcode::FlushRequest: {
            const Place at = place();
            put(encode(FlushRequest{.stag = at.key,
                                    .offset = at.address,
                                    .length = choices_.word(),
                                    .level = FlushLevel{choices_.byte() % 4U}}));
            break;
        }
        case Opcode::AtomicRequest: {
            const Place at = place();
            const unsigned choice = choices_.byte();
            put(encode(AtomicRequest{.operation = AtomicOperation{choice % 4},
                                     .identifier = choice,
                                     .stag = at.key,
                                     .offset = at.address,
                                     .add_swap = choices_.byte(),
                                     .add_swap_mask = choices_.flag() ? UINT64_MAX : 0,
                                     .compare = choices_.byte(),
                                     .compare_mask = choices_.flag() ? UINT64_MAX : 0}));
            break;
        }
        case Opcode::AtomicResponse:
            put(encode(AtomicResponse{.identifier = choices_.byte(), .original = 0xa0}));
            break;
        case Opcode::AtomicWrite:
            payload_.assign(sizeof(std::uint64_t), std::byte{0xa7});
            break;
        case Opcode::Terminate: {
            const std::uint16_t code = choices_.word();
            put(encode(TerminateCode{static_cast<std::uint8_t>(code >> 12),
                                     static_cast<std::uint8_t>(code >> 8 & 15),
                                     static_cast<std::uint8_t>(code)}));
            break;
        }
        case Opcode::FlushResponse:
            payload_.clear();
            break;
        default:
            payload_.assign(choices_.word() & 0x3fffU, std::byte{0x5a});
            break;
    }
}

Segment FrameBuilder::segment(unsigned kind) {
    Segment segment{.opcode = opcodes[kind]};
    if (kind == arbitrary) {
        const auto number = static_cast<std::uint8_t>(choices_.byte() % 16);
        segment = {.opcode = Opcode{number},
                   .last = choices_.flag(),
                   .stag = choices_.stag(),
                   .offset = choices_.address(),
                   .msn = choices_.stag()};
        return segment;
    }
    switch (segment.opcode) {
        case Opcode::Write:
        case Opcode::AtomicWrite: {
            const Place to = place();
            segment.stag = to.key;
            segment.offset = to.address;
            break;
        }
        case Opcode::ReadResponse:
            // The device may have posted a read that this answers.
            segment.stag = device_.key(Area::Open);
            segment.offset = device_.address(Area::Open) + choices_.byte() % FuzzDevice::depth * 1024U;
            break;
        case Opcode::ReadRequest:
        case Opcode::FlushRequest:
        case Opcode::AtomicRequest:
            segment.msn = request_msn_++;
            break;
        case Opcode::FlushResponse:
        case Opcode::AtomicResponse:
            segment.msn = response_msn_++;
            break;
        case Opcode::Terminate:
            segment.msn = 1;
            break;
        case Opcode::SendInvalidate:
        case Opcode::SendSolicitedInvalidate:
            segment.stag = place().key;
            [[fallthrough]];
        default:
            segment.msn = send_msn_;
            segment.offset = message_bytes_;
            break;
    }
    return segment;
}

void FrameBuilder::twist(Segment &segment) {
    const unsigned twists = choices_.byte();
    if ((twists & AsImmediate) != 0 && is_send(segment.opcode)) {
        segment.opcode = segment.opcode == Opcode::Send ? Opcode::Immediate : Opcode::ImmediateSolicited;
        payload_.resize(std::min(payload_.size(), immediate_bytes));
    }
    if ((twists & MsnOff) != 0) {
        segment.msn += choices_.flag() ? 1 : UINT32_MAX;
    }
    if ((twists & OffsetOff) != 0) {
        segment.offset += choices_.flag() ? 1 : UINT64_MAX;
    }
    segment.last = segment.last && (twists & NotLast) == 0;
    segment.payload_bytes = static_cast<std::uint16_t>(payload_.size());

    frame_.assign(header_bytes(segment.opcode), std::byte{0});
    (void)encode_header(segment, frame_);
    if ((twists & ReservedBits) != 0) {
        frame_[2] |= std::byte{0x3c};
        frame_[3] |= std::byte{0x30};
    }
    if ((twists & WrongLength) != 0) {
        frame_[choices_.flag() ? 1 : 0] = static_cast<std::byte>(choices_.byte());
    }
    frame_.insert(frame_.end(), payload_.begin(), payload_.end());
    frame_.resize(frame_.size() + fpdu_pad_bytes(segment_bytes(segment)));
    Crc crc;
    crc.feed(frame_);
    const auto digest = crc.digest();
    frame_.insert(frame_.end(), digest.begin(), digest.end());
    if (!crc_ || (twists & WrongChecksum) != 0) {
        frame_.back() ^= std::byte{1};
    }
    if ((twists & CutShort) != 0) {
        frame_.resize(frame_.size() - std::min<std::size_t>(frame_.size(), choices_.byte()));
    }
}

std::span<const std::byte> FrameBuilder::build(unsigned kind) {
    Segment made = segment(kind % kinds);
    body(made.opcode);
    twist(made);
    if (is_send(made.opcode) || is_immediate(made.opcode)) {
        message_bytes_ = made.last ? 0 : message_bytes_ + made.payload_bytes;
        send_msn_ += made.last ? 1 : 0;
    }
    return frame_;
}

}  // namespace fuzz
