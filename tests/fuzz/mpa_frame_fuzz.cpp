// SPDX-License-Identifier: BSD-3-Clause
// This target decodes and encodes MPA start-up frames. The first byte chooses the role (bit 0) and how the
// target takes the rest (bit 1): as a frame to decode, or as the choices of a frame to encode. An accepted
// frame encodes to the same bytes, and an encoded frame decodes to the same frame.
#include <algorithm>
#include <array>
#include <vector>

#include "choices.hpp"
#include "soft/wire/mpa.hpp"

namespace {

using namespace soft::wire;
using fuzz::Choices;
using fuzz::require;

using Room = std::array<std::byte, mpa_max_frame_bytes>;

// Returns the bits of the flag word that mean nothing in this role. Decoding loses them.
std::uint8_t meaningless_flags(const MpaFrame &frame) {
    return static_cast<std::uint8_t>(0x08 | (frame.soft_operations ? 0 : 0x01) |
                                     (frame.role == MpaRole::Request ? 0x02 : 0x04) |
                                     (frame.enhanced ? 0 : 0x10));
}

void decode(std::span<const std::byte> input, MpaRole role) {
    if (input.size() >= mpa_header_bytes) {
        const auto tail = mpa_tail_bytes(input.first<mpa_header_bytes>(), role);
        require(!tail || *tail <= mpa_max_private_bytes, "the tail is within its bound");
    }
    const auto frame = decode_mpa_frame(input, role);
    if (!frame) {
        require(frame.error().text != nullptr, "a refusal says why");
        return;
    }
    require(mpa_header_bytes + *mpa_tail_bytes(input.first<mpa_header_bytes>(), role) == input.size(),
            "an accepted frame is as long as it says");
    require(frame->private_data.empty() ||
                (frame->private_data.data() >= input.data() &&
                 frame->private_data.data() + frame->private_data.size() == input.data() + input.size()),
            "private data is the end of the frame");
    Room room;
    const std::size_t size = encode_mpa_frame(*frame, room);
    std::vector<std::byte> expected(input.begin(), input.end());
    expected[16] &= ~static_cast<std::byte>(meaningless_flags(*frame));
    require(std::ranges::equal(std::span{room}.first(size), expected), "accepted bytes encode to themselves");
}

bool same(const MpaFrame &a, const MpaFrame &b) {
    return a.role == b.role && a.revision == b.revision && a.markers == b.markers && a.crc == b.crc &&
           a.reject == b.reject && a.soft_operations == b.soft_operations && a.same_host == b.same_host &&
           a.enhanced == b.enhanced && a.peer_to_peer == b.peer_to_peer && a.rtr_send == b.rtr_send &&
           a.rtr_write == b.rtr_write && a.rtr_read == b.rtr_read && a.ird == b.ird && a.ord == b.ord &&
           std::ranges::equal(a.private_data, b.private_data);
}

void encode(Choices choices, MpaRole role) {
    MpaFrame frame{.role = role};
    frame.revision = choices.byte();
    const std::uint16_t flags = choices.word();
    frame.markers = (flags & 1) != 0;
    frame.crc = (flags & 2) != 0;
    frame.reject = (flags & 4) != 0;
    frame.soft_operations = (flags & 8) != 0;
    frame.same_host = frame.soft_operations && (flags & 512) != 0;
    frame.enhanced = (flags & 16) != 0 && frame.revision >= 2;
    if (frame.enhanced) {
        frame.peer_to_peer = (flags & 32) != 0;
        frame.rtr_send = (flags & 64) != 0;
        frame.rtr_write = (flags & 128) != 0;
        frame.rtr_read = (flags & 256) != 0;
        frame.ird = choices.word();
        frame.ord = choices.word();
    }
    frame.private_data = choices.bytes(mpa_max_private_bytes - mpa_enhanced_bytes);
    Room room;
    const std::size_t size = encode_mpa_frame(frame, room);
    const auto decoded = decode_mpa_frame(std::span{room}.first(size), role);
    require(decoded.has_value(), "what we encode we accept");
    frame.ird = std::min(frame.ird, mpa_max_depth);
    frame.ord = std::min(frame.ord, mpa_max_depth);
    require(same(*decoded, frame), "what we encode decodes to itself");
    for (std::size_t shorter = 0; shorter < size; ++shorter) {
        require(!decode_mpa_frame(std::span{room}.first(shorter), role), "a part of a frame is none");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const auto input = std::as_bytes(std::span{data, size});
    if (input.empty()) {
        return 0;
    }
    const MpaRole role = (data[0] & 1) == 0 ? MpaRole::Request : MpaRole::Reply;
    if ((data[0] & 2) == 0) {
        decode(input.subspan(1), role);
    } else {
        encode(Choices{input.subspan(1)}, role);
    }
    return 0;
}
