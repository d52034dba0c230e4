// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/nudges: sources of a group with work that no socket reports. A descriptor in the group's
// epoll set is readable while there is one.
#pragma once

#include <sys/eventfd.h>

#include <atomic>

#include "base/fd.hpp"

namespace soft {

class Source;

// A source's place in the list.
struct Nudge {
    std::atomic<bool> given{false};
    Source *next = nullptr;
};

// give() needs no lock. Only the holder of the group's lock takes.
class Nudges {
public:
    // Makes the descriptor. Returns false when the process has no more of them (errno).
    [[nodiscard]] bool open() {
        if (!told_) {
            told_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        }
        return static_cast<bool>(told_);
    }
    [[nodiscard]] bool is_open() const { return static_cast<bool>(told_); }
    [[nodiscard]] int fd() const { return told_.get(); }

    void give(Source &source, Nudge &nudge) {
        if (nudge.given.exchange(true, std::memory_order_acq_rel)) {
            return;
        }
        Source *first = first_.load(std::memory_order_relaxed);
        do {
            nudge.next = first;
            // Release makes the successor visible to the thread that takes the source.
        } while (!first_.compare_exchange_weak(first, &source, std::memory_order_release,
                                               std::memory_order_relaxed));
        if (first == nullptr) {
            (void)eventfd_write(told_.get(), 1);
        }
    }
    [[nodiscard]] bool any() const { return first_.load(std::memory_order_relaxed) != nullptr; }
    // Returns the first of all given sources. It reads the descriptor before, so that a source that is given
    // meanwhile makes it readable again.
    [[nodiscard]] Source *take_all() {
        eventfd_t ignored = 0;
        (void)eventfd_read(told_.get(), &ignored);
        return first_.exchange(nullptr, std::memory_order_acquire);
    }

private:
    base::Fd told_;
    std::atomic<Source *> first_{nullptr};
};

}  // namespace soft
