// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/answers: the peer's answers to our reads, flushes and atomic operations, and the requests
// that they are done with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "soft/memory/refusal.hpp"
#include "soft/memory/target.hpp"
#include "soft/transport/sender.hpp"

namespace soft {

// The owner locks, with the group's lock.
class Answers {
public:
    // `domain` is the queue pair's, whose keys name local memory.
    Answers(const ibv_pd &domain, Sender &sender) : domain_{domain}, sender_{sender} {}

    // A segment of an answer to a read begins; returns the offset of its payload.
    [[nodiscard]] Accepted<std::uint64_t> begin_read(const wire::Segment &segment);
    // Memory of the read for the bytes from `offset` on.
    [[nodiscard]] Accepted<> aim(Target &target, std::uint64_t offset, std::size_t most_bytes) const;
    // The segment is whole.
    void finish_read(const wire::Segment &segment);

    // Answers that fit one segment.
    [[nodiscard]] Accepted<> flush(const wire::Segment &segment, std::span<const std::byte> body);
    [[nodiscard]] Accepted<> atomic(const wire::Segment &segment, std::span<const std::byte> body);

private:
    const ibv_pd &domain_;
    Sender &sender_;
    std::uint32_t next_msn_ = 1;
    SendRequest *reading_ = nullptr;  // the read whose answer is arriving
};

}  // namespace soft
