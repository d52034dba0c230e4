// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/incoming: the bytes that come from the link, cut into segments wherever the link happens to
// cut them. Headers and small payload come through one buffer; large payload is received where it belongs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "soft/link/link.hpp"
#include "soft/memory/target.hpp"
#include "soft/progress/progress.hpp"
#include "soft/wire/ddp.hpp"
#include "soft/wire/rdmap.hpp"

namespace soft {

// Not thread-safe: its owner locks.
class Incoming {
public:
    void begin(bool crc);

    // The buffer is the group's, but while it holds a part of something.
    [[nodiscard]] bool has_buffer() const { return buffer_.bytes != nullptr; }
    [[nodiscard]] std::size_t buffer_size() const { return size_; }
    void lend(Buffer buffer) { buffer_ = std::move(buffer); }
    [[nodiscard]] bool is_empty() const { return begin_ == end_; }
    [[nodiscard]] Buffer take_buffer() {
        begin_ = end_ = 0;
        return std::move(buffer_);
    }

    // ---- bytes ----
    // Takes what the link has, into the buffer.
    [[nodiscard]] Link::Received fill(Link &link);
    // Takes payload to where it belongs, and into the buffer little of what follows: the trailer and the next
    // header, and a short segment behind a long one. More would be copied twice. The caller has seen that
    // the buffer is empty.
    [[nodiscard]] Link::Received fill(Link &link, Target &target);
    [[nodiscard]] std::span<const std::byte> buffered() const {
        return {buffer_.bytes.get() + begin_, end_ - begin_};
    }
    // Payload that is in the buffer.
    [[nodiscard]] std::span<const std::byte> buffered_payload() const {
        return buffered().first(std::min(payload_left_, end_ - begin_));
    }
    void drop(std::size_t bytes) { begin_ += bytes; }

    // ---- segments ----
    // Decodes the header of the next segment into segment(). False: more bytes are needed.
    [[nodiscard]] wire::Decoded<bool> decode();
    // The header that decode() refused, as far as it is here.
    [[nodiscard]] std::span<const std::byte> refused_header() const;
    [[nodiscard]] const wire::Segment &segment() const { return segment_; }
    // As much of segment() is here as it takes to begin it: of a control message, and with CRC32C on, which
    // is checked, all of it.
    [[nodiscard]] wire::Decoded<bool> can_begin() const;
    // The payload of segment() follows, behind its header.
    void begin_payload();
    // The body of segment(), a control message, which is dropped with its header and trailer.
    [[nodiscard]] std::span<const std::byte> take_control();
    // Drops the trailer, and the segment is over. False: not all of it is here.
    [[nodiscard]] bool take_trailer();
    [[nodiscard]] bool in_segment() const { return in_segment_; }
    // Part of a segment is here, and its rest is not.
    [[nodiscard]] bool inside() const { return in_segment_ || begin_ != end_; }
    [[nodiscard]] std::size_t payload_left() const { return payload_left_; }
    void placed(std::size_t bytes) { payload_left_ -= bytes; }
    // Counts segments that began.
    [[nodiscard]] std::uint64_t segments() const { return segments_; }
    void count_segment() { ++segments_; }
    // Forgets the segment and all bytes: the peer is not looked at any more.
    void forget();

private:
    [[nodiscard]] bool crc_is_right(std::size_t fpdu_bytes) const;

    Buffer buffer_;
    std::size_t size_ = 0;  // of the buffer
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    bool crc_ = false;
    wire::Segment segment_;  // the one whose payload is arriving
    bool in_segment_ = false;
    std::size_t payload_left_ = 0;
    std::uint64_t segments_ = 0;
};

// Payload that goes into memory; anything else is a control message, which fits one segment.
[[nodiscard]] inline bool is_data(wire::Opcode opcode) {
    return wire::is_send(opcode) || opcode == wire::Opcode::Write || opcode == wire::Opcode::ReadResponse;
}

}  // namespace soft
