// SPDX-License-Identifier: BSD-3-Clause
// soft/cm: the channel that the events of an id go to, and the waits of a synchronous id.
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "soft/cm/cm.hpp"

namespace soft {

base::Result<void> CmId::migrate(EventChannel *to) {
    OwnChannel own;
    if (to == nullptr && own_channel_) {
        return base::failure(EINVAL);  // it is synchronous already
    }
    if (to == nullptr) {
        auto made = EventChannel::create();
        if (!made) {
            return std::unexpected{made.error()};
        }
        own.reset(*made);
        to = own.get();
    }
    drop_event();
    const OwnChannel old = std::exchange(own_channel_, std::move(own));
    const base::Lock lock{mutex_};
    if (const auto awaited = channel_->forget_awaited(qp_num_)) {
        to->await(*awaited);
    }
    EventQueue all_waiting = channel_->withdraw(count_);
    while (auto waiting = all_waiting.pop()) {
        if (waiting->id != this) {
            static_cast<CmId *>(waiting->id)->arrived_on(*to);
        }
        to->push(std::move(waiting));
    }
    channel_ = to;
    channel = to;
    return {};
}

void CmId::push(rdma_cm_event_type type, int status, std::unique_ptr<Event> made) {
    made->event = type;
    made->status = status;
    made->id = this;
    push(std::move(made));
}

void CmId::push(std::unique_ptr<Event> made) {
    made->counted = &count_;
    const base::Lock lock{mutex_};
    channel_->push(std::move(made));
}

void CmId::arrived_on(EventChannel &events) {
    const base::Lock lock{mutex_};
    channel_ = &events;
    channel = &events;
}

// The event for which a synchronous id waited stays readable in id->event until its next call.
base::Result<void> CmId::wait_if_synchronous() {
    if (!own_channel_) {
        return {};
    }
    drop_event();
    auto got = own_channel_->next();
    if (!got) {
        return std::unexpected{got.error()};
    }
    event = *got;
    if (event->event == RDMA_CM_EVENT_REJECTED) {
        return base::failure(ECONNREFUSED);
    }
    return event->status == 0 ? base::Result<void>{} : base::failure(std::abs(event->status));
}

// Acknowledges the event of a synchronous id. The program may have done that, and cleared the member.
void CmId::drop_event() {
    if (event != nullptr) {
        acknowledge(static_cast<Event *>(std::exchange(event, nullptr)));
    }
}

base::Result<CmId *> CmId::next_request() {
    if (!own_channel_ || inherited()) {
        return base::failure(EINVAL);
    }
    drop_event();
    auto got = own_channel_->next();
    if (!got) {
        return std::unexpected{got.error()};
    }
    Event &fetched = **got;
    if (fetched.event != RDMA_CM_EVENT_CONNECT_REQUEST) {
        event = &fetched;
        return base::failure(EINVAL);
    }
    auto &child = *static_cast<CmId *>(fetched.id);
    if (auto moved = child.migrate(nullptr); !moved) {
        acknowledge(&fetched);
        delete &child;
        return std::unexpected{moved.error()};
    }
    // From now on the event belongs to the child, so the listener may be destroyed first.
    child.event = &fetched;
    fetched.counted = &child.count_;
    child.count_.took_over();
    count_.acknowledged();
    return &child;
}

void CmId::awaited_no_more() {
    const base::Lock lock{mutex_};
    (void)channel_->forget_awaited(qp_num_);
}

}  // namespace soft
