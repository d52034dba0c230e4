// SPDX-License-Identifier: BSD-3-Clause
// soft/device/async_events: a context's asynchronous events, which tell what no completion tells about a
// queue pair, completion queue or shared receive queue.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <vector>

#include "base/condition.hpp"
#include "base/fork.hpp"
#include "base/readable.hpp"
#include "base/result.hpp"

namespace soft {

class AsyncEvents : public base::Inheritable {
public:
    explicit AsyncEvents(base::Readable readable) : readable_{std::move(readable)} {}

    // Returns a descriptor that is readable while there is an event.
    [[nodiscard]] int fd() const { return readable_.fd(); }
    // Adds an event. `element` is the ibv_qp, ibv_cq or ibv_srq.
    void push(ibv_event_type type, void *element) EXCLUDES(mutex_);
    // Returns the next event. Blocks unless fd is O_NONBLOCK. Fails with EAGAIN or EINTR, and with EINVAL
    // when inherited.
    [[nodiscard]] base::Result<ibv_async_event> next() EXCLUDES(mutex_);
    void acknowledge(const ibv_async_event &event);
    // Drops the events of an element that is to be destroyed. Returns when its fetched events are
    // acknowledged.
    void forget(const void *element) EXCLUDES(mutex_);

private:
    struct Pending {
        ibv_event_type type;
        void *element;
    };

    base::Mutex mutex_;  // no other lock is taken with it
    base::Readable readable_;
    base::Condition acknowledged_;
    std::deque<Pending> pending_ GUARDED_BY(mutex_);
    std::vector<const void *> unacknowledged_ GUARDED_BY(mutex_);
};

// Returns the context of the element that an event is about.
[[nodiscard]] const ibv_context &context_of(const ibv_async_event &event);

}  // namespace soft
