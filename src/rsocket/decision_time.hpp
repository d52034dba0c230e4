// SPDX-License-Identifier: BSD-3-Clause
// rsocket/decision_time: until when the peer of an rsocket may decide whether the rsocket is a stream or TCP.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>

#include "base/fd.hpp"
#include "rsocket/sleep.hpp"

namespace rsockets {

// The lock of the rsocket guards it.
class DecisionTime {
public:
    // Says how long a peer has for the rest of a request, or for the answer to ours.
    static constexpr std::chrono::seconds time_to_answer{1};

    // Returns the same times without the timer, for the rsocket of a forked child.
    [[nodiscard]] DecisionTime in_child() const;

    // The peer of an accepted rsocket has until then to begin its request.
    void begin_grace(base::Clock::time_point ends) { grace_ends_ = ends; }
    [[nodiscard]] bool has_grace() const { return grace_ends_.has_value(); }
    // From now on the peer has time_to_answer.
    void await_answer() { answer_due_ = base::Clock::now() + time_to_answer; }
    [[nodiscard]] bool awaits_answer() const { return answer_due_.has_value(); }
    // Returns whether the peer was to answer, and has not in time.
    [[nodiscard]] bool is_answer_late() const { return answer_due_ && base::Clock::now() >= *answer_due_; }
    // The peer may answer at any time, or has answered.
    void await_no_answer() { answer_due_.reset(); }

    // Returns until when bytes of the peer may decide; nothing when that time is over.
    [[nodiscard]] Deadline due() const;
    // Returns a descriptor that becomes readable when the time is over, as long as it is not. Where the
    // kernel gives none, no thread would be woken: then the time of an accepted rsocket is over now. An
    // rsocket that connects may still get its answer, or the device gives the connection up.
    [[nodiscard]] std::optional<pollfd> timer(bool is_accepted);
    // Keeps the timer's descriptor open.
    [[nodiscard]] const std::shared_ptr<const base::Fd> &owner_of_timer() const { return timer_; }
    void drop_timer() { timer_.reset(); }

private:
    Deadline grace_ends_;  // for the request of a peer that has said nothing
    Deadline answer_due_;  // for the rest of a request, or the answer to ours
    std::shared_ptr<const base::Fd> timer_;
};

}  // namespace rsockets
