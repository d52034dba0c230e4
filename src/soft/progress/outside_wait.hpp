// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/outside_wait: threads that wait for a queue on a descriptor, and serve its group themselves
// (softrdma_cq_wait_begin, softrdma_events_wait_begin). The descriptor is the group's epoll set: its sockets
// make it readable, and what another thread has put into the queue does by one more descriptor in the set.
#pragma once

#include <atomic>
#include <optional>

#include "base/readable.hpp"
#include "base/result.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

// Goes with a queue, whose lock guards all but any().
class OutsideWait {
public:
    // The descriptor does not tell of what is there already: the caller looks first.
    [[nodiscard]] base::Result<void> begin(const Group &group) {
        if (!told_) {
            auto made = base::Readable::create();
            if (!made) {
                return std::unexpected{made.error()};
            }
            if (auto watched = group.watch_also(made->fd()); !watched) {
                return watched;
            }
            told_ = std::move(*made);
        }
        count_.fetch_add(1, std::memory_order_relaxed);
        return {};
    }
    // False when nobody waits.
    [[nodiscard]] bool end() {
        if (!any()) {
            return false;
        }
        if (count_.fetch_sub(1, std::memory_order_relaxed) == 1) {
            told_->set(false);
        }
        return true;
    }
    // Whether somebody waits; without the lock a hint.
    [[nodiscard]] bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
    // There is something to take, or no more. Costs a system call when that changes while somebody waits.
    void tell(bool something) {
        if (any()) {
            told_->set(something);
        }
    }

private:
    std::optional<base::Readable> told_;  // made by the first wait
    std::atomic<unsigned> count_{0};
};

}  // namespace soft
