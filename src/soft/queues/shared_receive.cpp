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

// Serves the queue pairs in their order while there are receives. The first in line keeps its place until it
// takes a receive, so that no later one is served before it. A queue pair leaves the line with its group
// locked. So a queue pair that is still in line when this thread has its group's lock stays there as long as
// the lock is held.
void SharedReceiveQueue::serve_waiters() {
    while (true) {
        Waiter waiter;
        {
            const base::Lock lock{mutex_};
            if (waiters_.empty() || posted_.size() == 0) {
                return;
            }
            waiter = waiters_.front();
        }
        const base::Lock serving{waiter.group->mutex()};
        if (is_first(waiter)) {
            waiter.taker->receives_posted();
        }
    }
}

// The group is compared too, because another queue pair, with another group, may have the same address by
// now.
bool SharedReceiveQueue::is_first(const Waiter &waiter) {
    const base::Lock lock{mutex_};
    return !waiters_.empty() && waiters_.front() == waiter;
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
    // When others are before it, one of them is about to be served: the thread that posts goes on while there
    // are waiters and receives.
    if (place != waiters_.begin() || !posted_.pop(receive)) {
        if (place == waiters_.end()) {
            waiters_.push_back({.taker = &taker, .group = taker.group()});
        }
        return false;
    }
    if (!waiters_.empty()) {
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
    std::erase_if(waiters_, [&](const Waiter &waiter) { return waiter.taker == &taker; });
}

}  // namespace soft
