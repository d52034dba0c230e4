// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/completion_queue: completion queues, and completion channels (completion_channel.cpp).
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "base/readable.hpp"
#include "base/result.hpp"
#include "base/ring.hpp"
#include "base/shared_value.hpp"
#include "base/watched_mutex.hpp"
#include "soft/ground/faults.hpp"
#include "soft/progress/outside_wait.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

class CompletionQueue;

// Time stamps are nanoseconds, which is what hca_core_clock tells programs.
inline constexpr std::uint64_t clock_kilohertz = 1'000'000;
// The parts of a completion (wc_flags) that ask for them.
inline constexpr std::uint64_t wc_stamps =
    static_cast<unsigned>(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) |
    static_cast<unsigned>(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);

// A queue pair as its completion queues see it: polled entries free places of its queues.
class Completing {
public:
    enum class WorkQueue : std::uint8_t { Send, Receive };
    // Frees `slots` places of one of the queues; the program has polled the completions of their requests.
    // Any thread may call it.
    virtual void release(WorkQueue queue, unsigned slots) = 0;

protected:
    ~Completing() = default;
};

// The events of the attached completion queues. `fd` is readable while there is an event.
class CompletionChannel : public ibv_comp_channel, public base::Inheritable {
public:
    [[nodiscard]] static base::Result<CompletionChannel *> create(ibv_context *context);
    ~CompletionChannel() = default;

    // Returns the next event. Blocks unless fd is O_NONBLOCK, and serves connections meanwhile. Fails with
    // EAGAIN or EINTR, and with EINVAL in a child of the process that made the channel.
    [[nodiscard]] base::Result<CompletionQueue *> next_event();
    [[nodiscard]] bool busy() EXCLUDES(mutex_);

private:
    friend class CompletionQueue;
    explicit CompletionChannel(base::Readable readable) : readable_{std::move(readable)} {}

    void attach(CompletionQueue &queue) EXCLUDES(mutex_);
    void detach(CompletionQueue &queue) EXCLUDES(mutex_);
    void notify(CompletionQueue &queue) EXCLUDES(mutex_);
    CompletionQueue *take() EXCLUDES(mutex_);

    base::Mutex mutex_;  // taken with a group's or queue pair's lock held, before a queue's
    base::Readable readable_ GUARDED_BY(mutex_);  // has fd; readable while an event is pending
    std::vector<CompletionQueue *> attached_ GUARDED_BY(mutex_);
    base::Ring<CompletionQueue *> pending_ GUARDED_BY(mutex_){
        0};  // grows with attach(): one place for each queue
    // The program waited for the last event in next_event(), and not on fd. The waiter then keeps its groups
    // while it is away.
    std::atomic<bool> sleeps_here_{false};
};

// A ring of work completions. It is an ibv_cq_ex with the layout of verbs.h (completion_queue_extended.cpp).
class CompletionQueue : public ibv_cq_ex {
public:
    // Returns the queue of a pointer that verbs passes.
    [[nodiscard]] static CompletionQueue *of(ibv_cq *queue) {
        return static_cast<CompletionQueue *>(reinterpret_cast<ibv_cq_ex *>(queue));
    }
    [[nodiscard]] static base::Result<CompletionQueue *> create(ibv_context *context, int entries,
                                                                void *cq_context, ibv_comp_channel *channel);
    ~CompletionQueue();
    CompletionQueue(const CompletionQueue &) = delete;
    CompletionQueue &operator=(const CompletionQueue &) = delete;

    // ---- verbs; in a child of the process that made it they return -1 or EINVAL, or do nothing ----
    int poll(int entries, ibv_wc *completions);
    int request_notification(bool solicited_only);
    void acknowledge(unsigned events);
    // Between these two calls the caller waits on the descriptor, and polls. begin_wait() fails with EMFILE,
    // end_wait() with EINVAL when no wait has begun.
    [[nodiscard]] base::Result<int> begin_wait();
    [[nodiscard]] base::Result<void> end_wait();
    // Fails with EINVAL when more completions wait to be polled than the new size holds.
    int resize(int entries);
    // Fills in the functions of ibv_cq_ex. `parts` are the IBV_WC_EX_ bits that the program asked for.
    void extend(std::uint64_t parts) EXCLUDES(mutex_);
    // Is called before the queue is destroyed. Stops new events, and returns when all are acknowledged.
    void leave_channel();

    // Adds a completion of `queue_pair` that frees `slots` places of its queue when it is polled. Returns
    // false when the ring is full: the completion is lost, and the caller must end the connection.
    using WorkQueue = Completing::WorkQueue;
    [[nodiscard]] bool push(const ibv_wc &completion, Completing &queue_pair, WorkQueue queue, unsigned slots,
                            bool solicited) EXCLUDES(mutex_);
    // Calls add(push), which may push any number of completions with `push`. That has the parameters of the
    // function above, but for a function that returns the completion, which is made in its place. The lock is
    // taken once for all.
    template <typename Add>
    void push_many(Add add) EXCLUDES(mutex_) {
        bool notify = false;
        {
            const base::Lock lock{mutex_};
            add([this, &notify](auto make, Completing &queue_pair, WorkQueue queue, unsigned slots,
                                bool solicited) {
                mutex_.assert_held();
                return push_one(make, queue_pair, queue, slots, solicited, notify);
            });
            tell_entries();
        }
        if (notify) {
            notify_channel();
        }
    }
    // Lets the completions of a queue pair that is to be destroyed stay, without freeing its places.
    void forget(const Completing &queue_pair) EXCLUDES(mutex_);
    // Removes the completions of a queue pair that begins anew, without freeing its places.
    void remove(const Completing &queue_pair) EXCLUDES(mutex_);

    [[nodiscard]] const std::shared_ptr<Group> &group() const { return group_; }
    [[nodiscard]] bool inherited() const { return group_->inherited(); }
    // Returns whether the program has asked for an event, and slept for the last one in next_event().
    [[nodiscard]] bool expects_sleeper() const {
        const auto *const events = static_cast<const CompletionChannel *>(ibv_cq_ex::channel);
        return events != nullptr && wants_notification() &&
               events->sleeps_here_.load(std::memory_order_relaxed);
    }
    // Has this queue's poller serve another group too, in which a queue pair that completes here has its
    // socket. Changes nothing when there is no memory for that.
    void serve_also(const std::shared_ptr<Group> &group) EXCLUDES(mutex_);
    void stop_serving(const std::shared_ptr<Group> &group) EXCLUDES(mutex_);

    std::atomic<int> users{0};  // queue pairs

private:
    friend class CompletionChannel;
    CompletionQueue(std::size_t entries, std::shared_ptr<Group> group);

    struct Entry {
        ibv_wc completion;
        Completing *queue_pair;
        unsigned slots;
        WorkQueue queue;
    };
    enum class Notify { No, Solicited, Any };
    // When a completion was pushed, in nanoseconds: of CLOCK_MONOTONIC, and of CLOCK_REALTIME.
    struct Stamp {
        std::uint64_t raw;
        std::uint64_t wallclock;
    };

    template <typename Make>
    [[nodiscard, gnu::always_inline]] bool push_one(Make make, Completing &queue_pair, WorkQueue queue,
                                                    unsigned slots, bool solicited, bool &notify)
        REQUIRES(mutex_) {
        if (ring_.full()) [[unlikely]] {
            tell_overrun();
            return false;
        }
        const Entry &pushed = ring_.push_made([&] {
            return Entry{.completion = make(), .queue_pair = &queue_pair, .slots = slots, .queue = queue};
        });
        if (watched_ && !watch_pushed(pushed)) [[unlikely]] {
            return false;
        }
        if (const Notify wanted = notify_.load(std::memory_order_relaxed);
            wanted != Notify::No && (wanted == Notify::Any || solicited)) [[unlikely]] {
            base::set_shared(notify_, Notify::No);
            notify = true;
        }
        return true;
    }
    // Tells pollers and threads outside of entries that were pushed.
    void tell_entries() REQUIRES(mutex_) {
        if (!ring_.empty() && !has_entries_.load(std::memory_order_relaxed)) {
            base::set_shared(has_entries_, true);
        }
        if (waiters_.any()) [[unlikely]] {
            tell_waiters();
        }
    }
    void tell_waiters() REQUIRES(mutex_);
    void notify_channel();
    template <typename Note>
    int take_noted(int entries, ibv_wc *completions, Note note) EXCLUDES(mutex_);
    int take(int entries, ibv_wc *completions) EXCLUDES(mutex_);
    [[nodiscard]] int poll_stamped() EXCLUDES(mutex_);
    // Does what seldom has to be done with the youngest completion. Returns false when it is lost.
    [[nodiscard]] bool watch_pushed(const Entry &pushed) REQUIRES(mutex_);
    template <typename Take>
    int poll_by(Take take);
    template <typename Take>
    int serve_and(Take take);
    void serve(bool spinning);
    // Is called when the caller is about to sleep.
    void forget_empty_polls();
    void stop_spinning();
    void end_assistance();
    void end_vain_polls();
    [[nodiscard]] int poll_extended();
    void tell_overrun() REQUIRES(mutex_);
    [[nodiscard]] bool wants_notification() const {
        return notify_.load(std::memory_order_relaxed) != Notify::No;
    }
    struct Other {
        std::shared_ptr<Group> group;
        unsigned queue_pairs;  // guarded by mutex_
    };
    using Others = std::vector<Other>;
    void publish(std::shared_ptr<Others> others) REQUIRES(mutex_);
    // Returns null when there are none.
    [[nodiscard]] std::shared_ptr<const Others> others() EXCLUDES(mutex_);
    template <typename Do>
    void for_other_groups(Do action) {
        if (const auto others = this->others()) {
            std::ranges::for_each(*others, action, &Other::group);
        }
    }

    base::WatchedMutex
        mutex_;  // taken with a group's, queue pair's or channel's lock held, before a receive queue's
    base::Ring<Entry> ring_ GUARDED_BY(mutex_);
    std::atomic<bool> has_entries_{false};  // changed with the lock
    OutsideWait waiters_;
    bool overrun_ GUARDED_BY(mutex_) = false;  // it has been reported
    const Faults *const faults_ = Faults::active();
    std::uint64_t pushes_ GUARDED_BY(mutex_) = 0;  // the count for injected faults
    // One for each place of the ring; null when the program asked for none.
    std::unique_ptr<Stamp[]> stamps_ GUARDED_BY(mutex_);
    bool watched_ GUARDED_BY(mutex_) = faults_ != nullptr;  // watch_pushed() has something to do
    std::shared_ptr<Others> others_ GUARDED_BY(mutex_);
    std::atomic<bool> has_others_{false};
    const std::shared_ptr<Group> group_;

    // These counters tell whether a poller spins.
    std::atomic<Notify> notify_{Notify::No};  // changed with the lock
    std::atomic<unsigned> empty_polls_{0};
    std::atomic<base::Clock::time_point> last_assist_;
    // A wait has begun. Its descriptor reports the sockets, so the look before it need not check them.
    std::atomic<bool> wait_begun_{false};

    // One thread at a time reads a completion by ibv_cq_ex, from start_poll() to end_poll().
    base::Mutex reading_;
    ibv_wc read_{};
    Stamp read_stamp_{};

    unsigned pending_events_ = 0;         // guarded by the channel's lock
    unsigned unacknowledged_events_ = 0;  // guarded by ibv_cq::mutex, with ibv_cq::cond
};

}  // namespace soft
