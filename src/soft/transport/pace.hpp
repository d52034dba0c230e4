// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/pace: the time that a peer has to end a segment that it has begun, and to continue a message
// whose receive other connections could use. Complete segments are not timed.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

// Says how far the peer has come.
struct PeerPosition {
    bool inside_segment;
    bool holds_shared_receive;
    std::uint64_t segments;  // begun so far
    std::uint32_t next_msn;
    std::uint64_t message_bytes;  // bytes of the message that have come
};

// It is not thread-safe: its owner locks.
class Pace {
public:
    // Begins to time the segment or message that the peer has begun, unless it is timed already. Returns true
    // when timeout() begins now.
    [[nodiscard]] bool begin(const PeerPosition &now) {
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
        const limits::InForce &now = limits::in_force();
        return message_watched_ ? now.shared_message_timeout : now.segment_timeout;
    }
    // Is called when the time is over. Returns true when the peer has not continued.
    [[nodiscard]] bool is_late(const PeerPosition &now) const {
        if (message_watched_) {
            return now.holds_shared_receive && now.next_msn == then_.next_msn &&
                   now.message_bytes - then_.message_bytes < limits::shared_message_pace_bytes;
        }
        return now.inside_segment && now.segments == then_.segments;
    }
    // Gives the peer its whole time again.
    void forget() { segment_watched_ = message_watched_ = false; }

private:
    bool segment_watched_ = false;
    bool message_watched_ = false;  // a message that holds a shared receive
    PeerPosition then_{};
};

}  // namespace soft
