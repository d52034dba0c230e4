// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/answers: the peer's answers to our reads, flushes and atomic operations, and its
// acknowledgements of other requests, which complete these requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/memory/refusal.hpp"
#include "soft/memory/target.hpp"
#include "soft/transport/sender.hpp"

namespace soft {

// The owner calls it with the group's lock held.
class Answers {
public:
    // `domain` is the queue pair's; its keys name local memory.
    Answers(const ibv_pd &domain, Sender &sender) : domain_{domain}, sender_{sender} {}

    void begin() {
        next_msn_ = 1;
        reading_ = nullptr;
    }
    // Begins a segment of an answer to a read. Returns the offset of its payload.
    [[nodiscard]] OrRefusal<std::uint64_t> begin_read(const wire::Segment &segment);
    // Finds the memory of the read for the bytes from `offset` on.
    [[nodiscard]] OrRefusal<> aim(Target &target, std::uint64_t offset, std::size_t most_bytes) const;
    // Is called when the segment is complete.
    void finish_read(const wire::Segment &segment);

    // These take answers that fit into one segment.
    [[nodiscard]] OrRefusal<> flush(const wire::Segment &segment, std::span<const std::byte> body);
    [[nodiscard]] OrRefusal<> atomic(const wire::Segment &segment, std::span<const std::byte> body);
    [[nodiscard]] OrRefusal<> acknowledged(const wire::Segment &segment, std::span<const std::byte> body);

private:
    const ibv_pd &domain_;
    Sender &sender_;
    std::uint32_t next_msn_ = 1;
    SendRequest *reading_ = nullptr;  // the read whose answer is arriving
};

}  // namespace soft
