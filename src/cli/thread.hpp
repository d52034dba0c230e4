// SPDX-License-Identifier: BSD-3-Clause
// cli/thread: threads of the command, and an event that ends their waits.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "base/fd.hpp"
#include "cli/failure.hpp"

namespace cli {

// An event that any thread sets once, and that wakes a thread in poll(2).
class StopEvent {
public:
    StopEvent();
    explicit operator bool() const { return static_cast<bool>(fd_); }
    void stop();
    // A thread that always finds something to do asks this at intervals.
    [[nodiscard]] bool is_stopped() const { return stopped_.load(std::memory_order_relaxed); }
    // Waits until the descriptor is readable (or, if `events` says so, writable), and returns true; returns
    // false after stop().
    [[nodiscard]] bool wait(int fd, short events) const;

private:
    std::atomic<bool> stopped_{false};  // relaxed: it publishes nothing else
    base::Fd fd_;
};

// Starts a thread. Fails when there are no resources for one, and the server continues.
[[nodiscard]] Outcome<std::thread> start_thread(std::function<void()> run);

}  // namespace cli
