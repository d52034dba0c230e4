// SPDX-License-Identifier: BSD-3-Clause
#include "soft/cm/channel.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <unordered_set>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

constinit base::LastingMutex channels_lock;

const base::HeldWhileForking<channels_lock> channels_survive_forks{base::ForkLevel::SoftCm};

// The channels that are not destroyed. A channel that a program names is searched here before it is read.
auto &channels() REQUIRES(channels_lock) {
    static auto &all =
        *new std::unordered_set<const rdma_event_channel *>;  // never destroyed: threads may be in a call
                                                              // while the process ends
    return all;
}

}  // namespace

void Event::set_private_data(std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, private_data.begin());
    param.conn.private_data = bytes.empty() ? nullptr : private_data.data();
    param.conn.private_data_len = static_cast<std::uint8_t>(std::min<std::size_t>(bytes.size(), UINT8_MAX));
}

void acknowledge(Event *event) {
    EventCount &count = *event->counted;
    delete event;
    count.acknowledged();
}

// The access is sequentially consistent, although the channel's lock already orders it with the id's end,
// which takes that lock first.
void EventCount::delivered(const Event &fetched) {
    --waiting_;
    ++unacknowledged_;
    if (fetched.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        --unfetched_requests_;
    }
}

void EventCount::acknowledged() {
    const base::Lock lock{mutex_};
    --unacknowledged_;
    acknowledged_.notify_all();
}

void EventCount::wait_until_acknowledged() {
    const base::Lock lock{mutex_};
    while (unacknowledged_ != 0) {
        acknowledged_.wait(mutex_);
    }
}

EventQueue::~EventQueue() {
    while (pop() != nullptr) {
    }
}

void EventQueue::push(std::unique_ptr<Event> event) {
    auto &place = empty() ? first_ : last_->next;
    last_ = event.get();
    place = std::move(event);
}

std::unique_ptr<Event> EventQueue::pop() {
    auto event = std::move(first_);
    if (event != nullptr) {
        first_ = std::move(event->next);
    }
    return event;
}

std::unique_ptr<Event> EventQueue::take(const Event &event) {
    Event *before = nullptr;
    std::unique_ptr<Event> *link = &first_;
    while (link->get() != &event) {
        before = link->get();
        link = &before->next;
    }
    auto taken = std::move(*link);
    *link = std::move(taken->next);
    if (*link == nullptr) {
        last_ = before;
    }
    return taken;
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
        return std::unexpected{group.error()};
    }
    std::unique_ptr<EventChannel, Leave> made{new EventChannel{std::move(*readable), std::move(*group)}};
    const base::Lock lock{channels_lock};
    channels().insert(made.get());
    return made.release();
}

void EventChannel::destroy(rdma_event_channel *channel) {
    bool is_there = false;
    {
        const base::Lock lock{channels_lock};
        is_there = channels().erase(channel) != 0;
    }
    if (is_there) {
        static_cast<EventChannel *>(channel)->leave();
    }
}

void EventChannel::leave() {
    base::Lock lock{channels_lock};
    if (--users_ == 0) {
        lock.unlock();
        delete this;
    }
}

void EventChannel::push(std::unique_ptr<Event> event) {
    const base::Lock lock{mutex_};
    event->counted->waits();
    events_.push(std::move(event));
    tell();
}

void EventChannel::tell() {
    readable_.set(!events_.empty());
    waiters_.tell(!events_.empty());
}

base::Result<int> EventChannel::begin_wait() {
    if (group_->inherited()) {
        return base::failure(EINVAL);
    }
    {
        const base::Lock lock{mutex_};
        if (auto begun = waiters_.begin(*group_); !begun) {
            return std::unexpected{begun.error()};
        }
    }
    group_->begin_outside();
    return group_->fd();
}

base::Result<void> EventChannel::end_wait() {
    if (group_->inherited()) {
        return base::failure(EINVAL);
    }
    {
        const base::Lock lock{mutex_};
        if (!waiters_.end()) {
            return base::failure(EINVAL);
        }
    }
    group_->end_outside();
    return {};
}

Event *EventChannel::take() {
    std::unique_ptr<Event> event;
    {
        const base::Lock lock{mutex_};
        event = events_.pop();
        if (event == nullptr) {
            return nullptr;
        }
        event->counted->delivered(*event);  // before another thread can see that no event is pending
        tell();
    }
    return event.release();
}

// The kernel's descriptor lives while a thread reads from it, and programs rely on that: rping destroys its
// channel while its event thread is in this call, or is about to begin it.
base::Result<Event *> EventChannel::next_of(rdma_event_channel *channel) {
    std::unique_ptr<EventChannel, Leave> found;
    {
        const base::Lock lock{channels_lock};
        if (channels().contains(channel)) {
            found.reset(static_cast<EventChannel *>(channel));
            ++found->users_;
        }
    }
    if (found != nullptr) {
        return found->next();
    }
    BASE_LOG(Warning, "rdma_get_cm_event: the event channel is destroyed; the call sleeps until a signal");
    (void)pause();
    return base::failure(EINTR);
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

EventQueue EventChannel::withdraw(const EventCount &of_id) {
    EventQueue gone;
    EventQueue kept;
    const base::Lock lock{mutex_};
    if (!of_id.has_waiting()) {
        return gone;  // the channel may no longer exist
    }
    while (auto event = events_.pop()) {
        if (event->counted == &of_id) {
            event->counted->withdrawn();
            gone.push(std::move(event));
        } else {
            kept.push(std::move(event));
        }
    }
    events_ = std::move(kept);
    tell();
    return gone;
}

std::unique_ptr<Event> EventChannel::withdraw_request(const EventCount &listener, base::Origin in_favour_of) {
    const auto origin_of_request = [&](const Event &event) -> std::optional<base::Origin> {
        const bool is_request = event.counted == &listener && event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
        return is_request ? std::optional{event.requested_by} : std::nullopt;
    };
    base::Shares shares;
    shares.add(in_favour_of);
    const base::Lock lock{mutex_};
    for (const Event *event = events_.oldest(); event != nullptr; event = event->next.get()) {
        if (const auto origin = origin_of_request(*event)) {
            shares.add(*origin);
        }
    }
    const std::size_t most = shares.most();
    const Event *newest = nullptr;
    for (const Event *event = events_.oldest(); event != nullptr; event = event->next.get()) {
        if (const auto origin = origin_of_request(*event); origin && shares.of(*origin) == most) {
            newest = event;
        }
    }
    if (newest == nullptr || shares.of(in_favour_of) == most) {
        return nullptr;
    }
    auto gone = events_.take(*newest);
    gone->counted->withdrawn();
    gone->counted->request_withdrawn();
    tell();
    return gone;
}

void EventChannel::await(const Awaited &connection) {
    const base::Lock lock{mutex_};
    awaited_.push_back(connection);
    try {
        awaited_shares_.add(connection.origin);
    } catch (const std::bad_alloc &) {
        awaited_.pop_back();
        throw;
    }
}

EventChannel::Awaited EventChannel::take_awaited(std::vector<Awaited>::const_iterator one) {
    const Awaited connection = *one;
    awaited_.erase(one);
    awaited_shares_.remove(connection.origin);
    return connection;
}

std::optional<EventChannel::Awaited> EventChannel::forget_awaited(std::uint32_t qp_num) {
    const base::Lock lock{mutex_};
    const auto known = std::ranges::find(awaited_, qp_num, &Awaited::qp_num);
    return known != awaited_.end() ? std::optional{take_awaited(known)} : std::nullopt;
}

std::optional<EventChannel::Awaited> EventChannel::forget_surplus_awaited() {
    const std::size_t limit = std::min(limits::in_force().max_handshakes, limits::share_of_descriptors());
    const base::Lock lock{mutex_};
    if (awaited_.size() <= limit) {
        return std::nullopt;
    }
    const std::size_t most = awaited_shares_.most();
    return take_awaited(std::ranges::find_if(awaited_, [&](const Awaited &one) {
        mutex_.assert_held();
        return awaited_shares_.of(one.origin) == most;
    }));
}

std::vector<EventChannel::Awaited> EventChannel::newest_awaited_from(base::Origin origin) {
    std::vector<Awaited> some;
    const base::Lock lock{mutex_};
    for (auto one = awaited_.rbegin(); one != awaited_.rend() && some.size() < most_looked_at; ++one) {
        if (one->origin == origin) {
            some.push_back(*one);
        }
    }
    std::ranges::reverse(some);
    return some;
}

base::Clock::time_point EventChannel::may_wait_until() {
    const base::Lock lock{mutex_};
    return looks_.until();
}

void EventChannel::waited_in_vain() {
    const base::Lock lock{mutex_};
    looks_.was_in_vain();
}

}  // namespace soft
