// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/nudges: sources of a group with work that no socket reports. A descriptor in the group's
// epoll set becomes readable with the first, and stays so until the group relies on its set: it costs two
// system calls to tell a thread that does not sleep, and to take that back.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <cstddef>
#include <span>

#include "base/event.hpp"
#include "base/fd.hpp"
#include "base/shared_value.hpp"
#include "soft/progress/source.hpp"

namespace soft {

// give() and add() need no lock. Only the holder of the group's lock calls the others.
class Nudges {
public:
    // Makes the descriptor. Returns false when the process has no more of them (errno).
    [[nodiscard]] bool open() {
        if (!told_) {
            told_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        }
        return static_cast<bool>(told_);
    }
    void close() { told_.reset(); }
    [[nodiscard]] bool is_open() const { return static_cast<bool>(told_); }
    [[nodiscard]] int fd() const { return told_.get(); }

    void give(Source &source) {
        if (add(source)) {
            tell();
        }
    }
    // Does the same, and does not make the descriptor readable. Returns false when the source is there
    // already.
    bool add(Source &source) {
        if (source.is_nudged_.exchange(true, std::memory_order_acq_rel)) {
            return false;
        }
        Source *next = first_.load(std::memory_order_relaxed);
        do {
            base::set_shared(source.next_nudged_, next);
            // Release makes the successor visible to the thread that takes the source.
        } while (!first_.compare_exchange_weak(next, &source, std::memory_order_release,
                                               std::memory_order_relaxed));
        return true;
    }
    [[nodiscard]] bool any() const { return first_.load(std::memory_order_relaxed) != nullptr; }
    // Makes the descriptor unreadable, unless there is a source. A thread that gave one may be late, and make
    // it readable once more.
    void settle() {
        if (!any()) {
            hush();
            if (any()) {
                tell();
            }
        }
    }
    // Makes the descriptor unreadable before take().
    void hush() {
        if (is_told_.load(std::memory_order_relaxed) && base::take_event(told_.get())) {
            // It reads what give() has stored, so the sources that were given before are seen by take().
            is_told_.exchange(false, std::memory_order_acq_rel);
        }
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
    // Only one write is there, or on its way, until it is read.
    void tell() {
        if (is_open() && !is_told_.exchange(true, std::memory_order_acq_rel)) {
            base::raise_event(told_.get());
        }
    }
    // Takes all sources, and calls use() for each, which may give it again.
    void take_each(const auto &use) {
        Source *source = first_.exchange(nullptr, std::memory_order_acquire);
        while (source != nullptr) {
            Source *const next = source->next_nudged_.load(std::memory_order_relaxed);
            // It reads what add() has stored that found the source here, so the turn comes after that call.
            source->is_nudged_.exchange(false, std::memory_order_acq_rel);
            use(*source);
            source = next;
        }
    }

    base::Fd told_;
    std::atomic<Source *> first_{nullptr};
    std::atomic<bool> is_told_{false};  // the descriptor is readable, or a thread is about to write
};

}  // namespace soft
