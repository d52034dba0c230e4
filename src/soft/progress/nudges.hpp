// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/nudges: sources of a group with work that no socket reports. A descriptor in the group's
// epoll set is readable while there is one.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <cstddef>
#include <span>

#include "base/fd.hpp"
#include "soft/progress/source.hpp"

namespace soft {

// give() needs no lock. Only the holder of the group's lock calls the functions that take.
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

    void give(Source &source) {
        if (source.is_nudged_.exchange(true, std::memory_order_acq_rel)) {
            return;
        }
        Source *first = first_.load(std::memory_order_relaxed);
        do {
            source.next_nudged_ = first;
            // Release makes the successor visible to the thread that takes the source.
        } while (!first_.compare_exchange_weak(first, &source, std::memory_order_release,
                                               std::memory_order_relaxed));
        if (first == nullptr) {
            (void)eventfd_write(told_.get(), 1);
        }
    }
    // Returns whether there is a source to take, or the descriptor has to be read again.
    [[nodiscard]] bool any() const {
        return first_.load(std::memory_order_relaxed) != nullptr || late_writes_ != 0;
    }
    // Takes the sources, and returns their number. Those for which there is no place stay.
    [[nodiscard]] std::size_t take(std::span<Source *> to) {
        std::size_t count = 0;
        take_each([&](Source &source) {
            if (count < to.size()) {
                to[count++] = &source;
            } else {
                give(source);
            }
        });
        return count;
    }
    // Takes one source, if it is there.
    void forget(const Source &source) {
        if (source.is_nudged_.load(std::memory_order_acquire)) {
            take_each([&](Source &one) {
                if (&one != &source) {
                    give(one);
                }
            });
        }
    }

private:
    // Takes all sources, and calls use() for each, which may give it again. It reads the descriptor before,
    // so that a source that is given meanwhile makes it readable again. The thread that gave the first of
    // them may not have written yet; its write has to be read later, or the descriptor would stay readable.
    void take_each(const auto &use) {
        eventfd_t writes = 0;
        (void)eventfd_read(told_.get(), &writes);
        Source *source = first_.exchange(nullptr, std::memory_order_acquire);
        if (is_open()) {
            late_writes_ += (source != nullptr ? 1 : 0) - writes;
        }
        while (source != nullptr) {
            Source *const next = source->next_nudged_;
            source->is_nudged_.store(false, std::memory_order_release);
            use(*source);
            source = next;
        }
    }

    base::Fd told_;
    std::atomic<Source *> first_{nullptr};
    eventfd_t late_writes_ = 0;  // those of the sources that were taken; they are still to be read
};

}  // namespace soft
