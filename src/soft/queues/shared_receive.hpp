// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/shared_receive: a shared receive queue, whose posted receives the sends of many connections
// take. A receive's place is free again when it is taken. One of an XRC domain has a number, which messages
// name, and a completion queue of its own.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "soft/progress/progress.hpp"
#include "soft/queues/completion_queue.hpp"
#include "soft/queues/receive_queue.hpp"
#include "soft/queues/xrc_domain.hpp"

namespace soft {

// A connection that takes receives of a shared queue.
class TakesReceives {
public:
    // Is called when there is a receive again for this one, which stands in line. It takes one, or leaves the
    // line when it takes none any more. The caller holds its group's lock.
    virtual void receives_posted() = 0;
    // Is called in place of that when another thread serves the group. The next turn calls receives_posted().
    // It stands in line, and the caller holds a lock with which it stays there.
    virtual void receives_came() = 0;
    [[nodiscard]] virtual const std::shared_ptr<Group> &group() const = 0;

protected:
    ~TakesReceives() = default;
};

class SharedReceiveQueue final : public ibv_srq, public base::Inheritable {
public:
    // Writes the sizes of the queue into the attributes.
    [[nodiscard]] static base::Result<SharedReceiveQueue *> create(ibv_pd &domain,
                                                                   ibv_srq_init_attr &attributes);
    // Makes one of an XRC domain, whose receives complete in `completions`.
    [[nodiscard]] static base::Result<SharedReceiveQueue *> create(ibv_pd &domain,
                                                                   ibv_srq_init_attr &attributes,
                                                                   XrcHandle &xrcd,
                                                                   CompletionQueue &completions);
    // No queue pair uses the queue any more. Blocks until its events are acknowledged.
    ~SharedReceiveQueue();
    SharedReceiveQueue(const SharedReceiveQueue &) = delete;
    SharedReceiveQueue &operator=(const SharedReceiveQueue &) = delete;

    // ---- verbs: they return 0 or an errno value; EINVAL in a child of the process that made it ----
    int post(ibv_recv_wr *request, ibv_recv_wr **bad) EXCLUDES(mutex_);
    int modify(const ibv_srq_attr &attributes, int mask);
    int query(ibv_srq_attr &attributes);

    // ---- queue pairs ----
    [[nodiscard]] std::size_t max_sge() const { return max_sge_; }
    void attach() EXCLUDES(mutex_);
    void detach() { users.fetch_sub(1, std::memory_order_release); }
    // Takes the oldest receive, for a queue pair whose group the caller has locked. When there are no more
    // than others wait for before it, the queue pair stands in line, and receives_posted() is called when
    // there is one for it.
    [[nodiscard]] bool take(Receive &receive, TakesReceives &taker);
    // Removes a queue pair from the line, before it leaves its group. Its connection has ended, or it is to
    // be destroyed; the caller has locked its group.
    void forget(TakesReceives &taker);
    // ---- one of an XRC domain ----
    // Returns its number; 0 when it is none.
    [[nodiscard]] std::uint32_t number() const {
        return xrc_ != nullptr ? std::to_underlying(xrc_->number) : 0;
    }
    // Adds the completion of a receive. Returns false when its completion queue is full.
    [[nodiscard]] bool complete(const ibv_wc &completion, bool solicited) {
        return xrc_->completions.push(completion, *xrc_, CompletionQueue::WorkQueue::Receive, 0, solicited);
    }

    std::atomic<int> users{0};  // queue pairs

private:
    struct Waiter {
        TakesReceives *taker;
        std::shared_ptr<Group> group;
    };
    // The place in an XRC domain. Polling a completion frees nothing.
    struct Xrc final : Completing {
        Xrc(XrcHandle &its_handle, CompletionQueue &its_completions)
            : handle{its_handle}, completions{its_completions} {}
        void release(CompletionQueue::WorkQueue, unsigned) override {}

        XrcHandle &handle;
        CompletionQueue &completions;
        wire::Queue number{};
    };

    SharedReceiveQueue(ibv_pd &domain, const ibv_srq_init_attr &attributes);
    void join(XrcHandle &xrcd, CompletionQueue &completions);
    void leave_xrc();
    void serve_waiters() EXCLUDES(mutex_);
    [[nodiscard]] std::optional<Waiter> lock_next(std::size_t &passed) EXCLUDES(mutex_);
    [[nodiscard]] bool stands_at(std::size_t place, const TakesReceives &taker) EXCLUDES(mutex_);

    const std::size_t max_sge_;
    std::unique_ptr<Xrc> xrc_;  // null when it is no queue of an XRC domain
    base::Mutex mutex_;         // taken with a group's lock held; with it, a group's lock is only tried
    PostedReceives posted_ GUARDED_BY(mutex_);
    std::vector<Waiter> waiters_
        GUARDED_BY(mutex_);  // the line, of connected queue pairs; the one that has waited longest is first
    std::uint32_t limit_ GUARDED_BY(mutex_) = 0;  // when fewer receives are posted there is an event, once
};

}  // namespace soft
