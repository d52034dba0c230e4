// SPDX-License-Identifier: BSD-3-Clause
// soft/device/async_events: a context's asynchronous events: what happened to a queue pair, completion queue
// or shared receive queue that no completion tells.
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

    // Readable while there is an event.
    [[nodiscard]] int fd() const { return readable_.fd(); }
    // element: the ibv_qp, ibv_cq or ibv_srq.
    void push(ibv_event_type type, void *element) EXCLUDES(mutex_);
    // The next event: blocks unless fd is O_NONBLOCK. EAGAIN, EINTR; EINVAL when inherited.
    [[nodiscard]] base::Result<ibv_async_event> next() EXCLUDES(mutex_);
    void acknowledge(const ibv_async_event &event);
    // The element is going: its events are dropped; returns when those that were fetched are acknowledged.
    void forget(const void *element) EXCLUDES(mutex_);

private:
    struct Pending {
        ibv_event_type type;
        void *element;
    };

    base::Mutex mutex_;  // nothing else is locked with it held
    base::Readable readable_;
    base::Condition acknowledged_;
    std::deque<Pending> pending_ GUARDED_BY(mutex_);
    std::vector<const void *> unacknowledged_ GUARDED_BY(mutex_);
};

// Returns the context of the element that an event is about.
[[nodiscard]] const ibv_context &context_of(const ibv_async_event &event);

}  // namespace soft
