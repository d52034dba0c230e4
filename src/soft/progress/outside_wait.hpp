// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/outside_wait: threads that wait for a queue on a descriptor, and serve its group themselves
// (softrdma_cq_wait_begin, softrdma_events_wait_begin). The descriptor is the group's epoll set. Its sockets
// make it readable. Entries that another thread has put into the queue make it readable through one more
// descriptor in the set.
#pragma once

#include <atomic>
#include <optional>

#include "base/readable.hpp"
#include "base/result.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

// Belongs to a queue, whose lock guards all functions except any().
class OutsideWait {
public:
    // The descriptor does not report entries that are there already, so the caller looks first.
    [[nodiscard]] base::Result<void> begin(const Group &group) {
        if (!told_) {
            auto made = base::Readable::create();
            if (!made) {
                return std::unexpected{made.error()};
            }
            if (auto added = group.add_descriptor(made->fd()); !added) {
                return added;
            }
            told_ = std::move(*made);
        }
        count_.fetch_add(1, std::memory_order_relaxed);
        return {};
    }
    // Returns false when no thread waits.
    [[nodiscard]] bool end() {
        if (!any()) {
            return false;
        }
        if (count_.fetch_sub(1, std::memory_order_relaxed) == 1) {
            told_->set(false);
        }
        return true;
    }
    // Returns whether a thread waits; without the lock it is a hint.
    [[nodiscard]] bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
    // Tells whether there is an entry to take. It costs a system call when that changes while a thread waits.
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
