// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/incoming: divides the bytes from the link into segments; the link may deliver them in any
// pieces. Headers and small payload come through one buffer; large payload is received straight into its
// place.
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

// It is not thread-safe: its owner locks.
class Incoming {
public:
    void begin(bool crc);

    // Returns whether the group's buffer is here. The group has it back unless it holds part of a segment.
    [[nodiscard]] bool has_buffer() const { return buffer_.bytes != nullptr; }
    [[nodiscard]] std::size_t buffer_size() const { return size_; }
    void lend(Buffer buffer) { buffer_ = std::move(buffer); }
    [[nodiscard]] bool is_empty() const { return begin_ == end_; }
    [[nodiscard]] Buffer take_buffer() {
        begin_ = end_ = 0;
        return std::move(buffer_);
    }

    // ---- bytes ----
    // Receives up to `most` bytes from the link into the buffer.
    [[nodiscard]] Link::Received fill(Link &link, std::size_t most = SIZE_MAX);
    // Receives payload into its place, and a few of the next bytes into the buffer: the trailer and the next
    // header, and a short segment behind a long one. More bytes would be copied twice. The caller has checked
    // that the buffer is empty.
    [[nodiscard]] Link::Received fill(Link &link, Target &target);
    [[nodiscard]] std::span<const std::byte> buffered() const {
        return {buffer_.bytes.get() + begin_, end_ - begin_};
    }
    // Returns the payload that is in the buffer.
    [[nodiscard]] std::span<const std::byte> buffered_payload() const {
        return buffered().first(std::min(payload_left_, end_ - begin_));
    }
    void drop(std::size_t bytes) { begin_ += bytes; }

    // ---- segments ----
    // Decodes the header of the next segment into segment(). Returns false when more bytes are needed.
    [[nodiscard]] wire::Decoded<bool> decode();
    // Returns the header that decode() refused, as far as it has come.
    [[nodiscard]] std::span<const std::byte> refused_header() const;
    [[nodiscard]] const wire::Segment &segment() const { return segment_; }
    // Returns whether enough of segment() has come to begin it. A control message, and with CRC32C any
    // segment, must be complete; this call checks the CRC.
    [[nodiscard]] wire::Decoded<bool> can_begin() const;
    // Begins the payload of segment(), which follows its header.
    void begin_payload();
    // Returns the body of segment(), a control message, and drops it with its header and trailer.
    [[nodiscard]] std::span<const std::byte> take_control();
    // Drops the trailer, which ends the segment. Returns false when the trailer is not complete.
    [[nodiscard]] bool take_trailer();
    [[nodiscard]] bool in_segment() const { return in_segment_; }
    // Returns whether a part of a segment has come, and its rest has not.
    [[nodiscard]] bool inside() const { return in_segment_ || begin_ != end_; }
    [[nodiscard]] std::size_t payload_left() const { return payload_left_; }
    void placed(std::size_t bytes) { payload_left_ -= bytes; }
    // Returns the number of segments that have begun.
    [[nodiscard]] std::uint64_t segments() const { return segments_; }
    void count_segment() { ++segments_; }
    // Drops the segment and all bytes, because the peer is ignored from now on.
    void forget();

private:
    [[nodiscard]] bool crc_is_right(std::size_t fpdu_bytes) const;

    Buffer buffer_;
    std::size_t size_ = 0;  // of the buffer
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    bool crc_ = false;
    wire::Segment segment_;  // the segment whose payload is arriving
    bool in_segment_ = false;
    std::size_t payload_left_ = 0;
    std::uint64_t segments_ = 0;
};

// Returns whether the payload goes into memory. Any other segment is a control message, which fits into one
// segment.
[[nodiscard]] inline bool is_data(wire::Opcode opcode) {
    return wire::is_send(opcode) || opcode == wire::Opcode::Write || opcode == wire::Opcode::ReadResponse;
}

}  // namespace soft
