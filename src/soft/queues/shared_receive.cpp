// SPDX-License-Identifier: BSD-3-Clause
#include "soft/queues/shared_receive.hpp"

#include <pthread.h>

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/limits.hpp"
#include "soft/memory/memory.hpp"

namespace soft {

base::Result<SharedReceiveQueue *> SharedReceiveQueue::create(ibv_pd &domain, ibv_srq_init_attr &attributes) {
    ibv_srq_attr &sizes = attributes.attr;
    if (sizes.max_wr > limits::max_srq_wr || sizes.max_sge > limits::max_sge) {
        BASE_LOG(Error, "shared receive queue of %u receives of %u scatter entries: the most is %d and %d",
                 sizes.max_wr, sizes.max_sge, limits::max_srq_wr, limits::max_sge);
        return base::failure(EINVAL);
    }
    sizes.max_wr = limits::granted_entries(sizes.max_wr);
    sizes.max_sge = std::max(sizes.max_sge, 1U);
    return new SharedReceiveQueue{domain, attributes};
}

base::Result<SharedReceiveQueue *> SharedReceiveQueue::create(ibv_pd &domain, ibv_srq_init_attr &attributes,
                                                              XrcHandle &xrcd, CompletionQueue &completions) {
    const auto made = create(domain, attributes);
    if (made) {
        try {
            (*made)->join(xrcd, completions);
        } catch (const std::bad_alloc &) {
            delete *made;
            throw;
        }
    }
    return made;
}

// The steps that can fail come first, so that a queue with xrc_ is in its domain.
void SharedReceiveQueue::join(XrcHandle &xrcd, CompletionQueue &completions) {
    auto place = std::make_unique<Xrc>(xrcd, completions);
    const auto group = xrcd.domain().group();
    completions.serve_also(group);
    try {
        place->number = xrcd.domain().add(*this);
    } catch (const std::bad_alloc &) {
        completions.stop_serving(group);
        throw;
    }
    completions.users.fetch_add(1, std::memory_order_relaxed);
    xrcd.users.fetch_add(1, std::memory_order_relaxed);
    xrc_ = std::move(place);
}

// A connection with a message for this queue ends: there is no such queue any more.
void SharedReceiveQueue::leave_xrc() {
    const auto group = xrc_->handle.domain().group();
    {
        const base::Lock serving{group->mutex()};
        xrc_->handle.domain().remove(xrc_->number);
        std::vector<Waiter> waiting;
        {
            const base::Lock lock{mutex_};
            waiting.swap(waiters_);
        }
        for (const Waiter &waiter : waiting) {
            waiter.taker->receives_posted();
        }
    }
    xrc_->completions.forget(*xrc_);
    xrc_->completions.stop_serving(group);
}

SharedReceiveQueue::SharedReceiveQueue(ibv_pd &domain, const ibv_srq_init_attr &attributes)
    : ibv_srq{}, max_sge_{attributes.attr.max_sge}, posted_{attributes.attr.max_wr, max_sge_} {
    context = domain.context;
    srq_context = attributes.srq_context;
    pd = &domain;
    pthread_mutex_init(&mutex, nullptr);
    pthread_cond_init(&cond, nullptr);
    static_cast<ProtectionDomain &>(domain).users.fetch_add(1, std::memory_order_relaxed);
}

SharedReceiveQueue::~SharedReceiveQueue() {
    if (xrc_ != nullptr) {
        if (!inherited()) {
            leave_xrc();
        }
        xrc_->completions.users.fetch_sub(1, std::memory_order_release);
        xrc_->handle.users.fetch_sub(1, std::memory_order_release);
    }
    async_events_of(*context).forget(static_cast<ibv_srq *>(this));
    static_cast<ProtectionDomain *>(pd)->users.fetch_sub(1, std::memory_order_release);
    pthread_cond_destroy(&cond);
    pthread_mutex_destroy(&mutex);
}

int SharedReceiveQueue::post(ibv_recv_wr *request, ibv_recv_wr **bad) {
    if (inherited()) {
        *bad = request;  // a connection of the parent waits for it
        return EINVAL;
    }
    int error = 0;
    {
        const base::Lock lock{mutex_};
        for (; request != nullptr; request = request->next) {
            if (request->num_sge < 0 || static_cast<std::size_t>(request->num_sge) > max_sge_) {
                error = EINVAL;
            } else if (posted_.size() == posted_.max_wr()) {
                error = ENOMEM;
            }
            if (error != 0) {
                *bad = request;
                break;
            }
            posted_.push(*request);
        }
    }
    serve_waiters();
    return error;
}

// Serves the queue pairs in their order while there are receives for them.
void SharedReceiveQueue::serve_waiters() {
    std::size_t passed = 0;
    while (const auto waiter = lock_next(passed)) {
        waiter->group->mutex().assert_held();
        const base::Lock serving{waiter->group->mutex(), base::adopt};
        waiter->taker->receives_posted();
        passed += stands_at(passed, *waiter->taker) ? 1 : 0;  // it took none
    }
}

bool SharedReceiveQueue::stands_at(std::size_t place, const TakesReceives &taker) {
    const base::Lock lock{mutex_};
    return place < waiters_.size() && waiters_[place].taker == &taker;
}

// Returns the next one in line, with its group locked. Another thread may serve the group of one, and wait
// there for a page of memory. That one keeps its place and a receive, which its own thread gives it, and the
// others are served. A queue pair leaves the line with its group locked, so the one that is returned stays in
// line as long as the lock is held.
std::optional<SharedReceiveQueue::Waiter> SharedReceiveQueue::lock_next(std::size_t &passed)
    RPMA_THREAD_SAFETY(no_thread_safety_analysis) {
    const base::Lock lock{mutex_};
    for (; passed < std::min(waiters_.size(), posted_.size()); ++passed) {
        const Waiter &waiter = waiters_[passed];
        if (waiter.group->mutex().try_lock()) {
            return waiter;
        }
        waiter.taker->receives_came();
    }
    return std::nullopt;
}

int SharedReceiveQueue::modify(const ibv_srq_attr &attributes, int mask) {
    if (inherited()) {
        return EINVAL;
    }
    if ((mask & ~IBV_SRQ_LIMIT) != 0) {
        BASE_LOG(Error, "a shared receive queue keeps its size: only its limit can be modified, not 0x%x",
                 static_cast<unsigned>(mask));
        return EOPNOTSUPP;
    }
    const base::Lock lock{mutex_};
    if (attributes.srq_limit > posted_.max_wr()) {
        return EINVAL;
    }
    if ((mask & IBV_SRQ_LIMIT) != 0) {
        limit_ = attributes.srq_limit;
    }
    return 0;
}

int SharedReceiveQueue::query(ibv_srq_attr &attributes) {
    if (inherited()) {
        return EINVAL;
    }
    const base::Lock lock{mutex_};
    attributes = {.max_wr = static_cast<std::uint32_t>(posted_.max_wr()),
                  .max_sge = static_cast<std::uint32_t>(max_sge_),
                  .srq_limit = limit_};
    return 0;
}

void SharedReceiveQueue::attach() {
    const base::Lock lock{mutex_};
    // The room is reserved before the queue pair counts, so that take() always has room.
    waiters_.reserve(static_cast<std::size_t>(users.load(std::memory_order_relaxed)) + 1);
    users.fetch_add(1, std::memory_order_relaxed);
}

bool SharedReceiveQueue::take(Receive &receive, TakesReceives &taker) {
    const base::Lock lock{mutex_};
    const auto place = std::ranges::find(waiters_, &taker, &Waiter::taker);
    // Those before it are about to be served, one receive each.
    const auto before = static_cast<std::size_t>(place - waiters_.begin());
    if (posted_.size() <= before || !posted_.pop(receive)) {
        if (place == waiters_.end()) {
            waiters_.push_back({.taker = &taker, .group = taker.group()});
        }
        return false;
    }
    if (place != waiters_.end()) {
        waiters_.erase(place);
    }
    if (posted_.size() < limit_) {
        limit_ = 0;
        async_events_of(*context).push(IBV_EVENT_SRQ_LIMIT_REACHED, static_cast<ibv_srq *>(this));
    }
    return true;
}

void SharedReceiveQueue::forget(TakesReceives &taker) {
    const base::Lock lock{mutex_};
    const auto place = std::ranges::find(waiters_, &taker, &Waiter::taker);
    if (place == waiters_.end()) {
        return;
    }
    const auto next = static_cast<std::size_t>(waiters_.erase(place) - waiters_.begin());
    // When a receive was for it, that one is for the first who had none.
    const std::size_t receives = posted_.size();
    if (next < receives && receives <= waiters_.size()) {
        waiters_[receives - 1].taker->receives_came();
    }
}

}  // namespace soft
