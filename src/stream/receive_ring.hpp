// SPDX-License-Identifier: BSD-3-Clause
// stream/receive_ring: the other half of allowance.hpp. The peer writes into one half of a buffer while the
// program reads the other; a half that was read is given to the peer again.
//
//            first half              second half
//     +----------------------+----------------------+
//     |     | unread         | unread  |            |      read_ -> first unread byte
//     +----------------------+----------------------+      written_ -> where the peer's next byte goes
//           ^ read_                    ^ written_          given to the peer: from written_ on, given_ bytes
// This class has positions only: the bytes are elsewhere. A message's credit goes back when its last byte was
// read.
#pragma once

#include <algorithm>
#include <optional>

#include "base/ring.hpp"
#include "stream/wire.hpp"

namespace stream {

// It is a part of a buffer.
struct Part {
    std::size_t offset = 0;
    std::size_t size = 0;
};

class ReceiveRing {
public:
    // The first half is the peer's from the start (Hello). `half` is its size in bytes, and not 0.
    ReceiveRing(std::uint32_t half, std::uint16_t credits)
        : half_{half},
          size_{2 * half_},
          credits_{credits},
          limit_{credits},
          update_at_{static_cast<std::uint16_t>(credits / 2)},
          ends_{credits},
          free_{half},
          given_{half} {}

    // Notes that the peer has written a message. Returns false when the peer had no credit, or no such room.
    // A message never crosses the end of a half, because the peer's window ends there.
    [[nodiscard]] bool arrived(std::uint32_t bytes) {
        const std::size_t in_half = (written_ < half_ ? half_ : size_) - written_;
        if (bytes == 0 || arrived_ == limit_ || bytes > std::min(in_half, given_)) {
            return false;
        }
        ++arrived_;
        given_ -= bytes;
        written_ = advanced(written_, bytes);
        bytes_arrived_ += bytes;
        ends_.push(bytes_arrived_);
        return true;
    }
    // Notes a message that took a credit and has no bytes to read. Returns false when the peer had no
    // credit.
    [[nodiscard]] bool arrived_empty() {
        if (arrived_ == limit_) {
            return false;
        }
        ++arrived_;
        ++taken_;
        return true;
    }

    [[nodiscard]] std::size_t readable() const { return bytes_arrived_ - bytes_read_; }
    // Returns whether nothing more can come before something is read. Many small messages use up the credits
    // before the room.
    [[nodiscard]] bool is_full() const { return arrived_ == limit_ || given_ == 0; }
    // Returns the unread bytes behind the first `skip`. Returns all of them, or those up to the end of
    // the buffer.
    [[nodiscard]] Part front(std::size_t skip = 0) const {
        const std::size_t offset = advanced(read_, skip);
        return {.offset = offset, .size = std::min(readable() - skip, size_ - offset)};
    }
    // Notes that the program has taken `bytes` bytes, at most readable().
    void consume(std::size_t bytes) {
        read_ = advanced(read_, bytes);
        free_ += bytes;
        bytes_read_ += bytes;
        while (!ends_.empty() && ends_.front() <= bytes_read_) {
            ends_.pop();
            ++taken_;
        }
    }

    struct Update {
        std::uint16_t limit;
        // The half that is the peer's again, if there is one.
        std::optional<Part> window;
    };
    // Returns whether the peer is to be told something. The counters have 16 bits and go round: a difference
    // below 0 means that the credits for which an update is due are not read yet.
    [[nodiscard]] bool owes_update() const {
        return free_ >= half_ || static_cast<std::int16_t>(taken_ - update_at_) >= 0;
    }
    // Returns the update for the peer, and counts it as told.
    [[nodiscard]] Update update() {
        Update update{.limit = static_cast<std::uint16_t>(taken_ + credits_), .window = {}};
        limit_ = update.limit;
        update_at_ = static_cast<std::uint16_t>(taken_ + credits_ / 2);
        if (free_ >= half_) {
            update.window = Part{.offset = next_half_, .size = half_};
            next_half_ = half_ - next_half_;
            free_ -= half_;
            given_ += half_;
        }
        return update;
    }

private:
    [[nodiscard]] std::size_t advanced(std::size_t position, std::size_t bytes) const {
        const std::size_t sum = position + bytes;
        return sum < size_ ? sum : sum - size_;
    }

    std::size_t half_;
    std::size_t size_;
    std::uint16_t credits_;
    // Numbers of messages: the one up to which the peer may send, how many came, how many were read, and how
    // many have to be read before the peer is told.
    std::uint16_t limit_;
    std::uint16_t arrived_ = 0;
    std::uint16_t taken_ = 0;
    std::uint16_t update_at_;
    // All bytes that have come and that were read, and for each message that is not read how many had come
    // with its last byte.
    std::uint64_t bytes_arrived_ = 0;
    std::uint64_t bytes_read_ = 0;
    base::Ring<std::uint64_t> ends_;
    std::size_t read_ = 0;
    std::size_t written_ = 0;
    // Bytes that were read and not given back yet, bytes that the peer may write, and where the half begins
    // that it gets next.
    std::size_t free_;
    std::size_t given_;
    std::size_t next_half_ = half_;
};

}  // namespace stream
