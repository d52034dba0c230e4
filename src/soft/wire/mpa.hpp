// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/mpa: MPA start-up frames (RFC 5044 section 7.1, RFC 6581 section 9) and FPDU framing.
//
//      0                              15 16   18   20                    20 + length
//     +---------------------------------+-----+-----+--------------------------+
//     | "MPA ID Req Frame" or "... Rep" |flags| len | [IRD ORD] private data   |
//     +---------------------------------+-----+-----+--------------------------+
//     flags: M C R S . o a h | revision (8 bits); IRD and ORD are there when S is set.
//     o, a and h are reserved bits; o offers, in a request, and a accepts, in a reply, the operations of two
//     soft devices. Beside them h offers and accepts to go on through memory of the host that both are on. In
//     a reply that rejects, a says that the peer's process has too few file descriptors for the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/wire/violation.hpp"

namespace soft::wire {

inline constexpr std::size_t mpa_header_bytes = 20;
inline constexpr std::size_t mpa_enhanced_bytes = 4;
inline constexpr std::size_t mpa_max_private_bytes = 512;  // RFC 5044: longer data is a protocol error
inline constexpr std::size_t mpa_max_frame_bytes = mpa_header_bytes + mpa_max_private_bytes;
inline constexpr std::uint16_t mpa_max_depth = 0x3fff;

enum class MpaRole { Request, Reply };

struct MpaFrame {
    MpaRole role = MpaRole::Request;
    std::uint8_t revision = 2;
    bool markers = false;
    bool crc = false;
    bool reject = false;
    bool soft_operations = false;  // offered in a request, accepted in a reply; with `reject`: see above
    bool same_host = false;        // offered and accepted: to continue through memory
    bool enhanced = true;          // RFC 6581; the rest is meaningful only then
    bool peer_to_peer = false;
    bool rtr_send =
        false;  // ready-to-receive messages that can be used: zero-length FPDU (send), write, read
    bool rtr_write = false;
    bool rtr_read = false;
    std::uint16_t ird = 0;
    std::uint16_t ord = 0;
    // NOLINTNEXTLINE(readability-redundant-member-init): g++ asks for it in designated initialisers
    std::span<const std::byte> private_data = {};
};

// Returns whether a frame of this role may begin with these bytes, of which more may come.
[[nodiscard]] bool may_begin_mpa_frame(std::span<const std::byte> bytes, MpaRole role);

// Returns the length of the bytes after the fixed 20, or the reason why they are no MPA frame of this role.
[[nodiscard]] Decoded<std::size_t> mpa_tail_bytes(std::span<const std::byte, mpa_header_bytes> header,
                                                  MpaRole role);

// Decodes a whole frame: header and tail. private_data borrows from `bytes`.
[[nodiscard]] Decoded<MpaFrame> decode_mpa_frame(std::span<const std::byte> bytes, MpaRole role);

// Returns the number of bytes written. The caller's private data is at most mpa_max_private_bytes -
// mpa_enhanced_bytes.
[[nodiscard]] std::size_t encode_mpa_frame(const MpaFrame &frame,
                                           std::span<std::byte, mpa_max_frame_bytes> bytes);

// FPDU: 16 bits of length | DDP segment of that length | 0 to 3 bytes of zero | CRC32C (always there, 0 when
// not used).
inline constexpr std::size_t fpdu_length_bytes = 2;
inline constexpr std::size_t fpdu_crc_bytes = 4;
inline constexpr std::size_t fpdu_max_trailer_bytes = 3 + fpdu_crc_bytes;

[[nodiscard]] constexpr std::size_t fpdu_pad_bytes(std::size_t segment_bytes) {
    return (4 - (fpdu_length_bytes + segment_bytes) % 4) % 4;
}
[[nodiscard]] constexpr std::size_t fpdu_trailer_bytes(std::size_t segment_bytes) {
    return fpdu_pad_bytes(segment_bytes) + fpdu_crc_bytes;
}

// The CRC32C of an FPDU, computed piece by piece; digest() returns the last four bytes, in their order.
class Crc {
public:
    void feed(std::span<const std::byte> bytes);
    [[nodiscard]] std::array<std::byte, fpdu_crc_bytes> digest() const;

private:
    std::uint32_t state_ = 0xffffffff;
};

}  // namespace soft::wire
