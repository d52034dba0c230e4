// SPDX-License-Identifier: BSD-3-Clause
// rsocket/waiter: how one thread wakes another that sleeps for the same socket.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/result.hpp"
#include "stream/shard.hpp"

namespace rsockets {

// What wakes one thread: an eventfd, which every thread has for itself.
class Waiter final : public stream::Sleeper, public base::Inheritable {
public:
    // Returns this thread's waiter, which is made when the thread sleeps for the first time. EMFILE, ENFILE,
    // ENOMEM.
    [[nodiscard]] static base::Result<std::shared_ptr<Waiter>> of_this_thread() {
        auto &own = kept();
        if (own == nullptr || own->inherited()) {
            base::Fd fd{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
            if (!fd) {
                return base::last_failure();
            }
            own = std::make_shared<Waiter>(std::move(fd));
        }
        return own;
    }
    [[nodiscard]] bool is_of_this_thread() const { return this == kept().get(); }
    explicit Waiter(base::Fd fd) : fd_{std::move(fd)} {}

    // The descriptor is readable when the thread was woken.
    [[nodiscard]] int fd() const { return fd_.get(); }
    void wake() override { (void)eventfd_write(fd_.get(), 1); }
    void clear() {
        eventfd_t ignored = 0;
        (void)eventfd_read(fd_.get(), &ignored);
    }

private:
    static std::shared_ptr<Waiter> &kept() {
        thread_local std::shared_ptr<Waiter> own;
        return own;
    }

    base::Fd fd_;
};

// The threads that sleep for one socket. Any number of threads may call; no other lock is taken with this
// one.
class Waiters {
public:
    void add(std::shared_ptr<Waiter> waiter) {
        const std::scoped_lock lock{mutex_};
        waiters_.push_back(std::move(waiter));
        any_.store(true, std::memory_order_relaxed);
    }
    // A waiter is removed as often as it was added.
    void remove(const std::shared_ptr<Waiter> &waiter) {
        const std::scoped_lock lock{mutex_};
        if (const auto found = std::ranges::find(waiters_, waiter); found != waiters_.end()) {
            waiters_.erase(found);
            any_.store(!waiters_.empty(), std::memory_order_relaxed);
        }
    }
    // Wakes all threads but this one, which is awake. The caller has changed something under a lock that
    // every thread takes between add() and its last look: a thread that is not in the list yet looks later,
    // and sees the change.
    void wake() {
        if (!any_.load(std::memory_order_relaxed)) {
            return;
        }
        const std::scoped_lock lock{mutex_};
        for (const auto &waiter : waiters_) {
            if (!waiter->is_of_this_thread()) {
                waiter->wake();
            }
        }
    }
    // Called in a forked child, where no thread sleeps.
    void after_fork_in_child() {
        new (&mutex_) std::mutex;
        waiters_.clear();
        any_.store(false, std::memory_order_relaxed);
    }

private:
    std::mutex mutex_;
    std::vector<std::shared_ptr<Waiter>> waiters_;
    // Whether the list has one. It is written with the lock held.
    std::atomic<bool> any_{false};
};

}  // namespace rsockets
