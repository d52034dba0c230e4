// SPDX-License-Identifier: BSD-3-Clause
// rsocket/waiter: how one thread wakes another that sleeps for the same socket.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "base/event.hpp"
#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "rsocket/call.hpp"
#include "stream/shard.hpp"

namespace rsockets {

// Wakes one thread by an eventfd, which every thread has for itself. If no descriptor is left there is none,
// and the thread wakes up by the clock.
class Waiter final : public stream::Sleeper, public base::Inheritable {
public:
    // Returns this thread's waiter, which is made when the thread sleeps for the first time. Fails with
    // ENOMEM.
    [[nodiscard]] static base::Result<std::shared_ptr<Waiter>> of_this_thread() {
        auto &own = kept();
        if (own == nullptr || own->inherited() || own->fd() < 0) {
            base::Fd fd{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
            if (!fd && errno != EMFILE && errno != ENFILE) {
                return base::last_failure();
            }
            own = std::make_shared<Waiter>(std::move(fd));
        }
        return own;
    }
    // Returns whether this thread's next look is still to come. In a signal handler that has interrupted the
    // thread on its way to sleep it is not.
    [[nodiscard]] bool is_awake() const { return this == kept().get() && !Call::has_interrupted_pause(); }
    explicit Waiter(base::Fd fd) : fd_{std::move(fd)} {}

    // The descriptor is readable when the thread was woken. -1: there is none.
    [[nodiscard]] int fd() const { return fd_.get(); }
    void wake() override { base::raise_event(fd_.get()); }
    void clear() { (void)base::take_event(fd_.get()); }

private:
    static std::shared_ptr<Waiter> &kept() {
        thread_local std::shared_ptr<Waiter> own;
        return own;
    }

    base::Fd fd_;
};

// A watcher is told of each change of a socket, by the thread that noticed it, which may hold the socket's
// locks. Any number of threads may call.
class Watcher {
public:
    Watcher(const Watcher &) = delete;
    Watcher &operator=(const Watcher &) = delete;
    virtual ~Watcher() = default;

    // Returns whether this woke a thread.
    virtual bool changed() = 0;
    // Returns whether the watcher is exclusive: of all exclusive watchers of a socket one has to hear of a
    // change.
    [[nodiscard]] virtual bool is_exclusive() const = 0;
    // The socket is about to be closed; none of its locks is held.
    virtual void closed() = 0;

protected:
    Watcher() = default;
};

// The threads that sleep for one socket, and its watchers. Any number of threads may call; with this
// lock only a watcher's is taken.
class Waiters {
public:
    void add(std::shared_ptr<Waiter> waiter) {
        const base::Lock lock{mutex_};
        waiters_.push_back(std::move(waiter));
        count();
    }
    // A waiter is removed as often as it was added.
    void remove(const std::shared_ptr<Waiter> &waiter) {
        const base::Lock lock{mutex_};
        if (const auto found = std::ranges::find(waiters_, waiter); found != waiters_.end()) {
            waiters_.erase(found);
            count();
        }
    }
    void watch(std::shared_ptr<Watcher> watcher) {
        const base::Lock lock{mutex_};
        watchers_.push_back(std::move(watcher));
        count();
    }
    // After this the watcher is told nothing any more. Returns whether there are others.
    bool unwatch(const Watcher &watcher) {
        const base::Lock lock{mutex_};
        std::erase_if(watchers_, [&](const auto &one) { return one.get() == &watcher; });
        count();
        return !watchers_.empty();
    }
    // The socket is about to be closed.
    void close() {
        std::vector<std::shared_ptr<Watcher>> watchers;
        {
            const base::Lock lock{mutex_};
            watchers = watchers_;
        }
        for (const auto &watcher : watchers) {
            watcher->closed();
        }
    }
    // Wakes all threads but this one where it is awake, and tells the watchers. With `this_one`, a sleep
    // that this thread has made ready ends too, because its descriptors no longer tell of news. The caller
    // has changed something under a lock that every thread takes between add() or watch() and its last look:
    // a thread or watcher that is not in the lists yet looks later, and sees the change.
    void wake(bool this_one = false) {
        if (!any_.load(std::memory_order_relaxed)) {
            return;
        }
        const base::Lock lock{mutex_};
        bool is_heard = false;  // by one of those that want it exclusively
        for (const auto &watcher : watchers_) {
            if (!watcher->is_exclusive()) {
                (void)watcher->changed();
            } else if (!is_heard) {
                is_heard = watcher->changed();
            }
        }
        for (const auto &waiter : waiters_) {
            if (this_one || !waiter->is_awake()) {
                waiter->wake();
            }
        }
    }

private:
    void count() REQUIRES(mutex_) {
        any_.store(!waiters_.empty() || !watchers_.empty(), std::memory_order_relaxed);
    }

    base::Mutex mutex_;
    std::vector<std::shared_ptr<Waiter>> waiters_ GUARDED_BY(mutex_);
    std::vector<std::shared_ptr<Watcher>> watchers_ GUARDED_BY(mutex_);
    // Says whether a list has one. It is written with the lock held.
    std::atomic<bool> any_{false};
};

}  // namespace rsockets
