// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket/decision_time.hpp"

#include <sys/timerfd.h>

namespace rsockets {

DecisionTime DecisionTime::in_child() const {
    DecisionTime childs;
    childs.grace_ends_ = grace_ends_;
    childs.answer_due_ = answer_due_;
    return childs;
}

Deadline DecisionTime::due() const {
    const Deadline due = answer_due_ ? answer_due_ : grace_ends_;
    return due && base::Clock::now() < *due ? due : std::nullopt;
}

std::optional<pollfd> DecisionTime::timer(bool is_accepted) {
    const Deadline due = this->due();
    if (!due) {
        return std::nullopt;
    }
    if (timer_ == nullptr || !*timer_) {
        timer_ =
            std::make_shared<const base::Fd>(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    }
    const auto since_boot = due->time_since_epoch();
    const auto whole = std::chrono::floor<std::chrono::seconds>(since_boot);
    const itimerspec at{.it_interval = {},
                        .it_value = {.tv_sec = whole.count(),
                                     .tv_nsec = std::chrono::nanoseconds{since_boot - whole}.count()}};
    if (!*timer_ || timerfd_settime(timer_->get(), TFD_TIMER_ABSTIME, &at, nullptr) != 0) {
        if (is_accepted) {
            (answer_due_ ? answer_due_ : grace_ends_) = base::Clock::now();
        }
        return std::nullopt;
    }
    return pollfd{.fd = timer_->get(), .events = POLLIN, .revents = 0};
}

}  // namespace rsockets
