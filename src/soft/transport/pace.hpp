// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/pace: a peer that has begun a segment has to end it, and a message that others could use the
// receive of has to go on. Nothing is timed while segments come whole.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

// Where the peer is in its bytes.
struct Progress {
    bool inside_segment;
    bool holds_shared_receive;
    std::uint64_t segments;  // begun so far
    std::uint32_t next_msn;
    std::uint64_t message_bytes;  // that have arrived of the message
};

// Not thread-safe: its owner locks.
class Pace {
public:
    // Times what the peer has begun, unless that is timed already. True: timeout() begins now.
    [[nodiscard]] bool begin(const Progress &now) {
        const bool message = now.holds_shared_receive && !message_watched_;
        if (!message && (!now.inside_segment || segment_watched_)) {
            return false;
        }
        segment_watched_ = true;
        message_watched_ = now.holds_shared_receive;
        then_ = now;
        return true;
    }
    [[nodiscard]] base::Clock::duration timeout() const {
        return message_watched_ ? limits::shared_message_timeout : limits::segment_timeout;
    }
    // The time is over: true when the peer has not gone on.
    [[nodiscard]] bool is_late(const Progress &now) const {
        if (message_watched_) {
            return now.holds_shared_receive && now.next_msn == then_.next_msn &&
                   now.message_bytes - then_.message_bytes < limits::shared_message_pace_bytes;
        }
        return now.inside_segment && now.segments == then_.segments;
    }
    // The peer has its whole time again.
    void forget() { segment_watched_ = message_watched_ = false; }

private:
    bool segment_watched_ = false;
    bool message_watched_ = false;  // that holds a shared receive
    Progress then_{};
};

}  // namespace soft
