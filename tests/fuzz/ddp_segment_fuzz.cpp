// SPDX-License-Identifier: BSD-3-Clause
// This target decodes DDP headers at the front of the bytes that have arrived. The codec accepts or
// refuses a header as soon as its bytes are there, and the bytes that follow do not matter. An
// accepted header encodes to the same bytes.
#include <algorithm>
#include <array>
#include <vector>

#include "choices.hpp"
#include "soft/wire/ddp.hpp"

namespace {

using namespace soft::wire;
using fuzz::require;

constexpr std::byte reserved_high{0x3c};
constexpr std::byte reserved_low{0x30};

bool same(const Segment &a, const Segment &b) {
    return a.opcode == b.opcode && a.last == b.last && a.stag == b.stag && a.offset == b.offset &&
           a.queue == b.queue && a.msn == b.msn && a.payload_bytes == b.payload_bytes;
}

void accepted(std::span<const std::byte> input, const Segment &segment) {
    const std::size_t size = header_bytes(segment.opcode);
    require(size <= input.size(), "a header is read only when it is all there");
    require(segment_bytes(segment) <= max_segment_bytes, "a segment is within its bound");
    require(fpdu_bytes(segment) % 4 == 0, "an FPDU is a multiple of four bytes");
    require(fpdu_bytes(segment) >= size + fpdu_crc_bytes, "an FPDU has its header and its trailer");
    std::array<std::byte, untagged_bytes> room;
    require(encode_header(segment, room) == size, "a header has the length of its opcode");
    std::vector<std::byte> expected(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(size));
    expected[2] &= ~reserved_high;
    expected[3] &= ~reserved_low;
    require(std::ranges::equal(std::span{room}.first(size), expected), "accepted bytes encode to themselves");
    const auto again = decode_header(std::span{room}.first(size));
    require(again && *again && same(**again, segment), "what we encode decodes to itself");
}

// Adds bytes one after another. The answer is "wait" at first. Then it
// is another one and never changes again.
void grows(std::span<const std::byte> input) {
    bool decided = false;
    for (std::size_t size = 0; size <= std::min(input.size(), untagged_bytes + 4); ++size) {
        const auto part = decode_header(input.first(size));
        const bool waits = part && !*part;
        require(!(decided && waits), "a decision stays one");
        decided = !waits;
        if (decided) {
            const auto whole = decode_header(input);
            require(whole.has_value() == part.has_value(), "what follows does not change it");
            require(!part || same(**part, **whole), "what follows changes nothing in it");
        }
    }
    require(decided || input.size() < untagged_bytes, "a whole header is decided on");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const auto input = std::as_bytes(std::span{data, size});
    const auto segment = decode_header(input);
    if (!segment) {
        require(segment.error().text != nullptr, "a refusal says why");
    } else if (*segment) {
        accepted(input, **segment);
    }
    grows(input);
    return 0;
}
