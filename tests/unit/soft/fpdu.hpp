// SPDX-License-Identifier: BSD-3-Clause
// Tests make FPDUs of RFC 5044 here, and take them apart, with nothing but the codecs.
#pragma once

#include <algorithm>

#include "soft/wire/ddp.hpp"
#include "soft/wire/mpa.hpp"

// This comes last, because it asserts.
#include "../wire/bytes.hpp"

namespace test {

struct Fpdu {
    soft::wire::Segment segment;
    Bytes payload;
    Bytes checksum;  // as it stands in the trailer
    bool checksum_is_right = false;
};

// Returns the FPDU of a segment and its payload. This function sets payload_bytes of the segment.
inline Bytes fpdu(soft::wire::Segment segment, std::span<const std::byte> payload, bool crc = false) {
    using namespace soft::wire;
    segment.payload_bytes = static_cast<std::uint16_t>(payload.size());
    Bytes all(header_bytes(segment.opcode));
    assert_int_equal(encode_header(segment, all), all.size());
    all.insert(all.end(), payload.begin(), payload.end());
    all.resize(all.size() + fpdu_pad_bytes(segment_bytes(segment)));
    Crc sum;
    sum.feed(all);
    const auto digest = sum.digest();
    all.resize(all.size() + fpdu_crc_bytes);
    if (crc) {
        std::ranges::copy(digest, all.end() - fpdu_crc_bytes);
    }
    return all;
}

// Takes one whole FPDU apart.
inline Fpdu taken_apart(const Bytes &all) {
    using namespace soft::wire;
    const auto segment = decode_header(all);
    assert_true(segment.has_value() && segment->has_value());
    assert_int_equal(all.size(), fpdu_bytes(**segment));
    const auto payload = std::span{all}.subspan(header_bytes((*segment)->opcode), (*segment)->payload_bytes);
    const auto summed = std::span{all}.first(all.size() - fpdu_crc_bytes);
    Crc sum;
    sum.feed(summed);
    Fpdu fpdu{.segment = **segment,
              .payload = Bytes(payload.begin(), payload.end()),
              .checksum = Bytes(all.end() - fpdu_crc_bytes, all.end())};
    fpdu.checksum_is_right = std::ranges::equal(sum.digest(), fpdu.checksum);
    return fpdu;
}

// Returns bytes that depend on their position and on `seed`.
inline Bytes pattern(std::size_t size, unsigned seed) {
    Bytes all(size);
    for (std::size_t i = 0; i < size; ++i) {
        all[i] = static_cast<std::byte>(i * 31 + seed + i / 251);
    }
    return all;
}

}  // namespace test
