// SPDX-License-Identifier: BSD-3-Clause
#include "soft/device/async_events.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/log.hpp"

namespace soft {

namespace {

// Calls `what` with the element that an event of its type is about.
template <typename Event, typename What>
decltype(auto) with_element(Event &event, What what) {
    switch (event.event_type) {
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return what(event.element.qp);
        case IBV_EVENT_CQ_ERR:
            return what(event.element.cq);
        default:
            return what(event.element.srq);
    }
}

ibv_async_event event_of(ibv_event_type type, void *element) {
    ibv_async_event event{};
    event.event_type = type;
    with_element(event,
                 [element]<typename Element>(Element *&its) { its = static_cast<Element *>(element); });
    return event;
}

const void *element_of(const ibv_async_event &event) {
    return with_element(event, [](const void *element) { return element; });
}

}  // namespace

const ibv_context &context_of(const ibv_async_event &event) {
    return with_element(event, [](const auto *element) -> const ibv_context & { return *element->context; });
}

void AsyncEvents::push(ibv_event_type type, void *element) {
    if (inherited()) {
        return;
    }
    const base::Lock lock{mutex_};
    try {
        pending_.push_back({.type = type, .element = element});
    } catch (const std::bad_alloc &) {
        BASE_LOG(Error, "asynchronous event %d is lost: out of memory", static_cast<int>(type));
        return;
    }
    readable_.set(true);
}

base::Result<ibv_async_event> AsyncEvents::next() {
    if (inherited()) {
        return base::failure(EINVAL);
    }
    while (true) {
        {
            const base::Lock lock{mutex_};
            if (!pending_.empty()) {
                const Pending event = pending_.front();
                unacknowledged_.push_back(event.element);
                pending_.pop_front();
                readable_.set(!pending_.empty());
                return event_of(event.type, event.element);
            }
        }
        if ((fcntl(fd(), F_GETFL) & O_NONBLOCK) != 0) {
            return base::failure(EAGAIN);
        }
        pollfd ready{.fd = fd(), .events = POLLIN, .revents = 0};
        if (poll(&ready, 1, -1) < 0) {
            return base::last_failure();
        }
    }
}

void AsyncEvents::acknowledge(const ibv_async_event &event) {
    if (inherited()) {
        return;
    }
    {
        const base::Lock lock{mutex_};
        const auto known = std::ranges::find(unacknowledged_, element_of(event));
        if (known != unacknowledged_.end()) {
            unacknowledged_.erase(known);
        }
    }
    acknowledged_.notify_all();
}

void AsyncEvents::forget(const void *element) {
    if (inherited()) {
        return;
    }
    const base::Lock lock{mutex_};
    std::erase_if(pending_, [element](const Pending &event) { return event.element == element; });
    readable_.set(!pending_.empty());
    while (std::ranges::find(unacknowledged_, element) != unacknowledged_.end()) {
        acknowledged_.wait(mutex_);
    }
}

}  // namespace soft
