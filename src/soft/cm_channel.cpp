// SPDX-License-Identifier: BSD-3-Clause
// soft/cm: event channels and events.
#include <fcntl.h>

#include <algorithm>

#include "soft/cm.hpp"

namespace soft {

void Event::set_private_data(std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, private_data.begin());
    param.conn.private_data = bytes.empty() ? nullptr : private_data.data();
    param.conn.private_data_len = static_cast<std::uint8_t>(std::min<std::size_t>(bytes.size(), UINT8_MAX));
}

void acknowledge(Event *event) {
    CmId &id = *event->counted;
    delete event;
    id.acknowledged();
}

EventChannel::EventChannel(base::Readable readable, std::shared_ptr<Group> group)
    : rdma_event_channel{.fd = readable.fd()}, readable_{std::move(readable)}, group_{std::move(group)} {}

EventChannel::~EventChannel() = default;

base::Result<EventChannel *> EventChannel::create() {
    auto readable = base::Readable::create();
    if (!readable) {
        return std::unexpected{readable.error()};
    }
    auto group = Group::create();
    if (!group) {
        return base::failure(EMFILE);
    }
    return new EventChannel{std::move(*readable), std::move(group)};
}

void EventChannel::push(std::unique_ptr<Event> event) {
    const std::scoped_lock lock{mutex_};
    event->counted->waits();
    events_.push_back(std::move(event));
    readable_.set(true);
}

Event *EventChannel::take() {
    std::unique_ptr<Event> event;
    {
        const std::scoped_lock lock{mutex_};
        if (events_.empty()) {
            return nullptr;
        }
        event = std::move(events_.front());
        events_.pop_front();
        event->counted->delivered(*event);  // before anybody can find that none is out
        readable_.set(!events_.empty());
    }
    return event.release();
}

base::Result<Event *> EventChannel::next() {
    if (group_->inherited()) {
        return base::failure(EINVAL);
    }
    Event *event = take();
    if (event != nullptr) {
        return event;
    }
    bool interrupted = false;
    if ((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0) {
        interrupted = !Group::wait({&group_, 1}, fd, [&] { return (event = take()) != nullptr; });
    } else {
        group_->poll(false);
        event = take();
    }
    if (event != nullptr) {
        return event;
    }
    return base::failure(interrupted ? EINTR : EAGAIN);
}

std::vector<std::unique_ptr<Event>> EventChannel::withdraw(const CmId &id) {
    std::vector<std::unique_ptr<Event>> gone;
    const std::scoped_lock lock{mutex_};
    if (!id.has_waiting()) {
        return gone;  // the channel may be long
    }
    for (auto &event : events_) {
        if (event->counted == &id) {
            event->counted->withdrawn();
            gone.push_back(std::move(event));
        }
    }
    std::erase(events_, nullptr);
    readable_.set(!events_.empty());
    return gone;
}

}  // namespace soft
