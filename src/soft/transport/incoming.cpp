// SPDX-License-Identifier: BSD-3-Clause
#include "soft/transport/incoming.hpp"

#include <algorithm>
#include <cstring>

namespace soft {

namespace {

// The buffer has room for a few small messages. With CRC32C it has room for any FPDU, because an FPDU is
// checked before it is placed.
constexpr std::size_t plain_buffer_bytes = 8192;
constexpr std::size_t crc_buffer_bytes =
    wire::fpdu_length_bytes + wire::max_segment_bytes + wire::fpdu_max_trailer_bytes;
// The number of bytes that are received behind a segment's payload.
constexpr std::size_t bytes_ahead = 256;
// The longest message that is not data: a request, an answer, or a TERMINATE with its quotes.
constexpr std::size_t max_control_bytes = 1024;

}  // namespace

void Incoming::begin(bool crc) {
    forget();
    segments_ = 0;
    crc_ = crc;
    size_ = crc ? crc_buffer_bytes : plain_buffer_bytes;
}

[[gnu::hot]] Link::Received Incoming::fill(Link &link, std::size_t most) {
    if (begin_ == end_) {
        begin_ = end_ = 0;
    } else if (begin_ != 0) {
        std::memmove(buffer_.bytes.get(), buffer_.bytes.get() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    const iovec room{.iov_base = buffer_.bytes.get() + end_, .iov_len = std::min(size_ - end_, most)};
    const Link::Received got = link.receive({&room, 1});
    end_ += got.bytes;
    return got;
}

[[gnu::hot]] Link::Received Incoming::fill(Link &link, Target &target) {
    begin_ = end_ = 0;
    if (target.bytes == payload_left_) {
        target.pieces[target.count++] = {.iov_base = buffer_.bytes.get(), .iov_len = bytes_ahead};
    }
    const Link::Received got = link.receive(std::span{target.pieces}.first(target.count));
    if (got.bytes > target.bytes) {
        end_ = got.bytes - target.bytes;
    }
    return got;
}

[[gnu::hot]] wire::Decoded<bool> Incoming::decode() {
    const auto header = wire::decode_header(buffered());
    if (!header) {
        return std::unexpected{header.error()};
    }
    if (!*header) {
        return false;
    }
    segment_ = **header;
    return true;
}

[[gnu::hot]] wire::Decoded<bool> Incoming::can_begin() const {
    const std::size_t fpdu = wire::fpdu_bytes(segment_);
    if (!is_data(segment_.opcode) && segment_.payload_bytes > max_control_bytes) {
        return wire::NotDecoded{{"a control message longer than any can be", wire::terminate::mpa_frame}};
    }
    if ((crc_ || !is_data(segment_.opcode)) && buffered().size() < fpdu) {
        return false;
    }
    if (crc_ && !crc_is_right(fpdu)) {
        return wire::NotDecoded{{"CRC32C of an FPDU is wrong", wire::terminate::mpa_crc}};
    }
    return true;
}

bool Incoming::crc_is_right(std::size_t fpdu_bytes) const {
    const auto fpdu = buffered().first(fpdu_bytes);
    const std::size_t summed = fpdu_bytes - wire::fpdu_crc_bytes;
    wire::Crc crc;
    crc.feed(fpdu.first(summed));
    return std::ranges::equal(crc.digest(), fpdu.subspan(summed));
}

[[gnu::hot]] void Incoming::begin_payload() {
    begin_ += wire::header_bytes(segment_.opcode);
    in_segment_ = true;
    payload_left_ = segment_.payload_bytes;
}

std::span<const std::byte> Incoming::take_control() {
    const auto body = buffered().subspan(wire::header_bytes(segment_.opcode), segment_.payload_bytes);
    begin_ += wire::fpdu_bytes(segment_);
    return body;
}

[[gnu::hot]] bool Incoming::take_trailer() {
    const std::size_t trailer = wire::fpdu_trailer_bytes(wire::segment_bytes(segment_));
    if (payload_left_ != 0 || buffered().size() < trailer) {
        return false;
    }
    begin_ += trailer;
    in_segment_ = false;
    return true;
}

void Incoming::forget() {
    in_segment_ = false;
    payload_left_ = 0;
    begin_ = end_ = 0;
}

std::span<const std::byte> Incoming::refused_header() const {
    const auto bytes = buffered();
    const std::size_t size = wire::header_bytes(bytes);
    return bytes.first(bytes.size() < size ? 0 : size);
}

}  // namespace soft
