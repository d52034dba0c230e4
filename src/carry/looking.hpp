// SPDX-License-Identifier: BSD-3-Clause
// carry/looking: how long a call waits: busy at first, and by the clock.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <optional>

#include "base/clock.hpp"
#include "carry/handlers.hpp"
#include "carry/own_calls.hpp"

namespace carry {

// A call that waits looks at the rings for so long before it sleeps in the kernel.
constexpr std::chrono::microseconds looks_for{250};

// Says whether this thread's looks are of use. They are in vain where the peer does not run while this thread
// looks, and they cost milliseconds where another program gets the processor that this thread yields, while a
// thread that sleeps would have it back at once. So looks in vain become rare: after each the thread leaves
// out twice as many, and many at once where looks take longer on average than to sleep and to be woken.
class Looks {
public:
    [[nodiscard]] bool is_due() {
        left_out_ -= left_out_ != 0 ? 1 : 0;
        return left_out_ == 0;
    }
    void took(base::Clock::duration time, bool found) {
        const bool is_long = time >= looks_for * 2;
        mean_ += found || is_long ? (time - mean_) / 256 : base::Clock::duration{};
        if (is_long && mean_ > std::chrono::microseconds{50}) {
            leave_out(8, 13);
        } else if (found) {
            in_vain_ = left_out_ = 0;
        } else {
            leave_out(1, 8);
        }
    }
    [[nodiscard]] static Looks &of_thread() {
        static thread_local constinit Looks looks;
        return looks;
    }

private:
    // The arguments are binary logarithms of how many looks to leave out.
    void leave_out(unsigned least, unsigned most) {
        in_vain_ = std::clamp(in_vain_ + 1, least, most);
        left_out_ = 1U << in_vain_;
    }
    base::Clock::duration mean_{};
    unsigned in_vain_ = 0;
    unsigned left_out_ = 0;
};

// Calls found() until it returns true, or the time is over, or a signal handler has run. Returns what it
// returned last.
template <typename Found>
[[nodiscard]] bool look(Found found) {
    Looks &looks = Looks::of_thread();
    if (!looks.is_due()) {
        return found();
    }
    const auto begin = base::Clock::now();
    auto now = begin;
    const Interruptions handlers;
    bool is_there = false;
    do {
        for (int i = 0; i < 8 && !is_there; ++i) {
            __builtin_ia32_pause();
            is_there = found();
        }
        if (is_there) {
            break;
        }
        wait_a_moment();  // the peer may wait for this processor
        now = base::Clock::now();
    } while (!handlers.any() && now - begin < looks_for);
    looks.took(now - begin, is_there);
    return is_there;
}

// The time that a wait has left.
class TimeLeft {
public:
    // timeout: nullptr stands for no end.
    explicit TimeLeft(const timespec *timeout) {
        if (timeout != nullptr) {
            end_ = base::Clock::now() + std::chrono::seconds{std::min<time_t>(timeout->tv_sec, INT_MAX)} +
                   std::chrono::nanoseconds{timeout->tv_nsec};
        }
    }
    [[nodiscard]] bool is_over() const { return end_ && *end_ <= base::Clock::now(); }
    // Returns how long the kernel may sleep; nullptr stands for no end.
    [[nodiscard]] const timespec *now() {
        if (!end_) {
            return nullptr;
        }
        const auto left = std::max<std::chrono::nanoseconds>(*end_ - base::Clock::now(), {});
        const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
        left_ = {.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
        return &left_;
    }

private:
    std::optional<base::Clock::time_point> end_;
    timespec left_{};
};

}  // namespace carry
