// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/response_segments: makes segments of the answers that are owed to the peer. A read's answer
// is taken from the region when it is sent, and the region stays registered as long as the batch reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ring.hpp"
#include "soft/memory/memory.hpp"
#include "soft/transport/batch.hpp"
#include "soft/transport/response.hpp"

namespace soft {

// It is not thread-safe: its owner locks.
class ResponseSegments {
public:
    // `peer` is the asker of the reads.
    ResponseSegments(const Asker &peer, Batch &batch) : peer_{peer}, batch_{batch} {}

    // Reserves memory for `most` answers that are owed at a time. Throws std::bad_alloc, and then changes
    // nothing.
    void reserve(std::size_t most);
    void begin(std::size_t max_payload_bytes) {
        max_payload_bytes_ = max_payload_bytes;
        offset_ = 0;
        msn_ = 1;
    }

    [[nodiscard]] bool full() const { return owed_.full(); }
    void push(const Response &response) { owed_.push(response); }

    // Returns true in the middle of an answer.
    [[nodiscard]] bool inside() const { return offset_ != 0; }
    [[nodiscard]] bool has_next() const { return !owed_.empty(); }
    // Returns the oldest answer. There is one.
    [[nodiscard]] const Response &next() { return owed_.front(); }
    // Adds the next segment of the oldest answer to the batch. There is such an answer.
    [[nodiscard]] Added add_next();
    void add_acknowledgement(const wire::Acknowledgement &placed);
    // Pins again the memory that the peer still has to read. Returns false when it was deregistered since the
    // link was full.
    [[nodiscard]] bool pin_again();
    // Releases the pins while the batch is not being sent, so that deregistering a region does not wait for
    // it.
    void unpin() { pins_.clear(); }
    // Is called when the batch is empty again.
    void batch_was_cleared() {
        pins_.clear();
        reads_.clear();
    }

private:
    [[nodiscard]] Added add_read(const wire::ReadRequest &read);

    struct Read {
        Access access;
        std::size_t piece;  // of the batch
    };

    const Asker peer_;
    Batch &batch_;
    base::Ring<Response> owed_{0};
    std::size_t max_payload_bytes_ = 0;
    std::size_t offset_ = 0;  // in the current answer
    std::uint32_t msn_ = 1;
    std::vector<Pin> pins_;  // of regions that the batch reads for the peer, while the link sends it
    std::vector<Read> reads_;
};

}  // namespace soft
