// SPDX-License-Identifier: BSD-3-Clause
#include "soft/wire/mpa.hpp"

#include <isa-l/crc.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "base/cursor.hpp"

namespace soft::wire {

namespace {

constexpr std::size_t key_bytes = 16;
constexpr char request_key[key_bytes + 1] = "MPA ID Req Frame";
constexpr char reply_key[key_bytes + 1] = "MPA ID Rep Frame";

constexpr std::uint16_t flag_markers = 0x8000;
constexpr std::uint16_t flag_crc = 0x4000;
constexpr std::uint16_t flag_reject = 0x2000;
constexpr std::uint16_t flag_enhanced = 0x1000;
// Offer and acceptance have different bits, because siw echoes the bits of a request in its reply.
constexpr std::uint16_t flag_soft_offer = 0x0400;
constexpr std::uint16_t flag_soft_accept = 0x0200;
constexpr std::uint16_t flag_same_host = 0x0100;
constexpr std::uint16_t revision_mask = 0x00ff;

constexpr std::uint16_t ird_peer_to_peer = 0x8000;
constexpr std::uint16_t ird_rtr_send = 0x4000;
constexpr std::uint16_t ord_rtr_write = 0x8000;
constexpr std::uint16_t ord_rtr_read = 0x4000;

std::uint16_t bit(bool set, std::uint16_t flag) {
    return set ? flag : std::uint16_t{0};
}

const char *key_of(MpaRole role) {
    return role == MpaRole::Request ? request_key : reply_key;
}

std::uint16_t soft_flag(MpaRole role) {
    return role == MpaRole::Request ? flag_soft_offer : flag_soft_accept;
}

}  // namespace

bool may_begin_mpa_frame(std::span<const std::byte> bytes, MpaRole role) {
    return std::memcmp(bytes.data(), key_of(role), std::min(bytes.size(), key_bytes)) == 0;
}

Decoded<std::size_t> mpa_tail_bytes(std::span<const std::byte, mpa_header_bytes> header, MpaRole role) {
    if (std::memcmp(header.data(), key_of(role), key_bytes) != 0) {
        return NotDecoded{{role == MpaRole::Request ? "not an MPA request frame" : "not an MPA reply frame",
                           terminate::mpa_frame}};
    }
    base::Reader reader{header.subspan(key_bytes)};
    (void)reader.big<std::uint16_t>();
    const auto length = reader.big<std::uint16_t>();
    if (length > mpa_max_private_bytes) {
        return NotDecoded{{"MPA private data longer than 512 bytes", terminate::mpa_frame}};
    }
    return length;
}

Decoded<MpaFrame> decode_mpa_frame(std::span<const std::byte> bytes, MpaRole role) {
    if (bytes.size() < mpa_header_bytes) {
        return NotDecoded{{"MPA frame shorter than its header", terminate::mpa_frame}};
    }
    const auto tail = mpa_tail_bytes(bytes.first<mpa_header_bytes>(), role);
    if (!tail) {
        return NotDecoded{tail.error()};
    }
    base::Reader reader{bytes.subspan(key_bytes)};
    const auto flags = reader.big<std::uint16_t>();
    (void)reader.big<std::uint16_t>();
    MpaFrame frame;
    frame.role = role;
    frame.revision = static_cast<std::uint8_t>(flags & revision_mask);
    frame.markers = (flags & flag_markers) != 0;
    frame.crc = (flags & flag_crc) != 0;
    frame.reject = (flags & flag_reject) != 0;
    frame.soft_operations = (flags & soft_flag(role)) != 0;
    frame.same_host = frame.soft_operations && (flags & flag_same_host) != 0;
    frame.enhanced = frame.revision >= 2 && (flags & flag_enhanced) != 0;
    std::size_t private_bytes = *tail;
    if (frame.enhanced) {
        if (private_bytes < mpa_enhanced_bytes) {
            return NotDecoded{{"enhanced MPA frame without IRD and ORD", terminate::mpa_frame}};
        }
        private_bytes -= mpa_enhanced_bytes;
        const auto ird = reader.big<std::uint16_t>();
        const auto ord = reader.big<std::uint16_t>();
        frame.peer_to_peer = (ird & ird_peer_to_peer) != 0;
        frame.rtr_send = (ird & ird_rtr_send) != 0;
        frame.rtr_write = (ord & ord_rtr_write) != 0;
        frame.rtr_read = (ord & ord_rtr_read) != 0;
        frame.ird = ird & mpa_max_depth;
        frame.ord = ord & mpa_max_depth;
    }
    frame.private_data = reader.bytes(private_bytes);
    if (!reader.ok() || reader.left() != 0) {
        return NotDecoded{{"MPA frame of another length than it says", terminate::mpa_frame}};
    }
    return frame;
}

std::size_t encode_mpa_frame(const MpaFrame &frame, std::span<std::byte, mpa_max_frame_bytes> bytes) {
    const std::size_t enhanced_bytes = frame.enhanced ? mpa_enhanced_bytes : 0;
    assert(frame.private_data.size() + enhanced_bytes <= mpa_max_private_bytes);
    base::Writer writer{bytes};
    writer.bytes(std::as_bytes(std::span{key_of(frame.role), key_bytes}));
    writer.big(static_cast<std::uint16_t>(
        bit(frame.markers, flag_markers) | bit(frame.crc, flag_crc) | bit(frame.reject, flag_reject) |
        bit(frame.enhanced, flag_enhanced) | bit(frame.soft_operations, soft_flag(frame.role)) |
        bit(frame.same_host, flag_same_host) | frame.revision));
    writer.big(static_cast<std::uint16_t>(frame.private_data.size() + enhanced_bytes));
    if (frame.enhanced) {
        writer.big(static_cast<std::uint16_t>(bit(frame.peer_to_peer, ird_peer_to_peer) |
                                              bit(frame.rtr_send, ird_rtr_send) |
                                              std::min(frame.ird, mpa_max_depth)));
        writer.big(static_cast<std::uint16_t>(bit(frame.rtr_write, ord_rtr_write) |
                                              bit(frame.rtr_read, ord_rtr_read) |
                                              std::min(frame.ord, mpa_max_depth)));
    }
    writer.bytes(frame.private_data);
    assert(writer.ok());
    return writer.used();
}

void Crc::feed(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        // crc32_iscsi takes an int, and does not write through its pointer.
        const auto piece = bytes.first(std::min<std::size_t>(bytes.size(), std::numeric_limits<int>::max()));
        auto *data = const_cast<unsigned char *>(reinterpret_cast<const unsigned char *>(piece.data()));
        state_ = crc32_iscsi(data, static_cast<int>(piece.size()), state_);
        bytes = bytes.subspan(piece.size());
    }
}

std::array<std::byte, fpdu_crc_bytes> Crc::digest() const {
    std::array<std::byte, fpdu_crc_bytes> bytes;
    base::Writer writer{bytes};
    writer.little(static_cast<std::uint32_t>(~state_));
    return bytes;
}

}  // namespace soft::wire
