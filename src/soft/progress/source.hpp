// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/source: what a group serves.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "persist/worker.hpp"
#include "soft/link/link.hpp"

namespace soft {

class Group;
class Source;
using Deadlines = std::set<std::pair<base::Clock::time_point, Source *>>;

// The owner of a socket, or of a deadline alone, that a group serves. progress() and expire() run with the
// group's lock held and do not block.
class Source {
public:
    Source() {
        Deadlines one;
        one.emplace(base::Clock::time_point{}, this);
        unused_deadline_ = one.extract(one.begin());
    }
    Source(const Source &) = delete;
    Source &operator=(const Source &) = delete;
    virtual ~Source() = default;

    // Does the work that can be done now. It is also called when there is none.
    virtual void progress() = 0;
    // Is called when the deadline that was set has passed.
    virtual void expire() {}
    // Returns whether the program may wait for a completion of this source. Otherwise a thread that has
    // polled for its completions goes on to look elsewhere, perhaps at its memory.
    [[nodiscard]] virtual bool is_awaited() const { return true; }
    // Returns the link that the group lets rest between the source's turns; null when there is none.
    [[nodiscard]] virtual Link *link_to_rest() { return nullptr; }

    // The caller has the group's lock.
    [[nodiscard]] bool has_deadline() const { return deadline_.has_value(); }

    // Leaves a job, which waits for storage, to a thread that is about to sleep for this source alone. When
    // progress() finds it, and the group does not keep it, no such thread came. There is one job at most.
    void leave_to_sleeper(persist::Job &job) { left_.store(&job, std::memory_order_release); }
    // Returns the job to the one thread that takes it, null to others. The caller has the group's lock.
    [[nodiscard]] persist::Job *take_left() {
        if (!has_left()) {
            return nullptr;
        }
        looks_at_left_ = 0;
        return left_.exchange(nullptr, std::memory_order_acquire);
    }
    [[nodiscard]] bool has_left() const { return left_.load(std::memory_order_relaxed) != nullptr; }
    [[nodiscard]] bool group_keeps_left() const { return group_keeps_left_; }

private:
    friend class Group;
    friend class Lively;
    friend class Nudges;
    static constexpr std::size_t nowhere = SIZE_MAX;
    std::size_t place_ = nowhere;           // its place in its group's sources_
    Deadlines::node_type unused_deadline_;  // kept while it has none, so that setting one needs no memory
    std::optional<base::Clock::time_point> deadline_;
    std::atomic<persist::Job *> left_{nullptr};
    unsigned looks_at_left_ = 0;  // by threads that may be about to sleep
    bool group_keeps_left_ = false;
    // Nudges uses these.
    std::atomic<bool> is_nudged_{false};
    std::atomic<Source *> next_nudged_{nullptr};
    // Lively uses these.
    std::size_t lively_place_ = nowhere;
    unsigned vain_looks_ = 0;
};

}  // namespace soft
