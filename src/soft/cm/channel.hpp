// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/channel: event channels, their events, and the count of one id's events.
//
// Locks: a channel's mutex_ guards its queue of events. Its caller may hold the lock of a group or an id's
// mutex_. While a channel's mutex_ is held, only an id's EventCount is changed.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/condition.hpp"
#include "base/mutex.hpp"
#include "base/origin.hpp"
#include "base/readable.hpp"
#include "base/result.hpp"
#include "soft/progress/brief_wait.hpp"
#include "soft/progress/outside_wait.hpp"
#include "soft/progress/progress.hpp"
#include "soft/wire/mpa.hpp"

namespace soft {

class EventCount;

struct Event : rdma_cm_event {
    EventCount *counted =
        nullptr;  // the count of the id that cannot be destroyed before this event is acknowledged
    base::Origin requested_by{};  // the origin of a request's peer
    std::unique_ptr<Event> next;  // the next one in a queue
    std::array<std::byte, wire::mpa_max_private_bytes> private_data{};

    void set_private_data(std::span<const std::byte> bytes);
};

// Destroys the event, so that the id that it counts for may be destroyed.
void acknowledge(Event *event);

// The count of one id's events that are not acknowledged:
//
//     pushed ─► waits ─► delivered ─► acknowledged
//                 └─► withdrawn, when the id goes or migrates
//
// The id is not destroyed before all events are acknowledged. mutex_ is taken after every other lock of this
// folder.
class EventCount {
public:
    // These are called with the lock of the event's channel held: the event waits there, or was taken out
    // again.
    void waits() { ++waiting_; }
    void withdrawn() { --waiting_; }
    // Is called with that lock held too, when the program fetched the event.
    void delivered(const Event &fetched);
    [[nodiscard]] bool has_waiting() const { return waiting_ != 0; }
    // Is called when the program has fetched an event that another id counted, and will acknowledge it here.
    void took_over() { ++unacknowledged_; }
    void acknowledged() EXCLUDES(mutex_);
    // Returns when the program has acknowledged all events that it fetched.
    void wait_until_acknowledged() EXCLUDES(mutex_);

    // These are called when a request is about to wait for the program, and when it was taken out again.
    void request_waits() { ++unfetched_requests_; }
    void request_withdrawn() { --unfetched_requests_; }
    [[nodiscard]] int unfetched_requests() const { return unfetched_requests_; }

private:
    base::Mutex mutex_;
    base::Condition acknowledged_;
    std::atomic<unsigned> waiting_{0};         // events in the channel
    std::atomic<unsigned> unacknowledged_{0};  // raised with the channel's lock, lowered with mutex_
    std::atomic<int> unfetched_requests_{0};
};

// Events in their order. No function allocates memory.
class EventQueue {
public:
    EventQueue() = default;
    ~EventQueue();
    EventQueue(EventQueue &&) = default;
    EventQueue &operator=(EventQueue &&) = default;

    [[nodiscard]] bool empty() const { return first_ == nullptr; }
    void push(std::unique_ptr<Event> event);
    // Takes out the oldest event, or returns null.
    [[nodiscard]] std::unique_ptr<Event> pop();
    [[nodiscard]] const Event *oldest() const { return first_.get(); }
    // Takes out a given event.
    [[nodiscard]] std::unique_ptr<Event> take(const Event &event);

private:
    std::unique_ptr<Event> first_;
    Event *last_ = nullptr;  // valid when there is a first one
};

// The events of the attached ids. `fd` is readable while there is an event.
class EventChannel : public rdma_event_channel {
public:
    // Makes a channel, which belongs to the caller until destroy().
    [[nodiscard]] static base::Result<EventChannel *> create();
    // A thread that sleeps in next() sleeps on, and the channel lives until that thread leaves.
    static void destroy(rdma_event_channel *channel);

    // Calls next() on a channel that another thread may destroy, or has destroyed. In the latter case the
    // caller sleeps as if it had called before; EINTR ends that sleep.
    [[nodiscard]] static base::Result<Event *> next_of(rdma_event_channel *channel);
    // Returns the next event, which belongs to the caller until it is acknowledged. Blocks unless fd is
    // O_NONBLOCK. Fails with EAGAIN or EINTR, and with EINVAL in a child of the process that made the
    // channel.
    [[nodiscard]] base::Result<Event *> next();
    void push(std::unique_ptr<Event> event) EXCLUDES(mutex_);
    // Between these two the caller waits on the descriptor, and looks with next(). begin_wait() fails with
    // EMFILE, end_wait() with EINVAL when no wait has begun.
    [[nodiscard]] base::Result<int> begin_wait();
    [[nodiscard]] base::Result<void> end_wait();
    // Takes out the events of an id that is to be destroyed.
    [[nodiscard]] EventQueue withdraw(const EventCount &of_id) EXCLUDES(mutex_);
    // Takes out the newest request for a listener of the origin that has most of them, so that a request of
    // another origin may wait in its place. Returns null when no origin has more than the other would then
    // have.
    [[nodiscard]] std::unique_ptr<Event> withdraw_request(const EventCount &listener,
                                                          base::Origin in_favour_of) EXCLUDES(mutex_);

    [[nodiscard]] const std::shared_ptr<Group> &group() const { return group_; }

    // A connection that an id of this channel accepted. It is established when the initiator's first FPDU
    // comes.
    struct Awaited {
        std::uint32_t qp_num;
        base::Origin origin;
    };
    void await(const Awaited &connection) EXCLUDES(mutex_);
    // When more are awaited than a listener may have start-ups, removes the oldest of the origin that has
    // most, and returns it.
    std::optional<Awaited> forget_surplus_awaited() EXCLUDES(mutex_);
    // Returns and removes a connection; nothing when it was not awaited.
    std::optional<Awaited> forget_awaited(std::uint32_t qp_num) EXCLUDES(mutex_);
    // Returns the newest ones of an origin, the oldest of them first. They are few, because the origin may
    // have many and ask for more.
    [[nodiscard]] std::vector<Awaited> newest_awaited_from(base::Origin origin) EXCLUDES(mutex_);
    static constexpr std::size_t most_looked_at = 32;  // of newest_awaited_from()
    // Returns until when a look at such connections, which begins now, may wait for the threads that serve
    // them.
    [[nodiscard]] base::Clock::time_point may_wait_until() EXCLUDES(mutex_);
    // Tells that a look has waited until then in vain (BriefWait).
    void waited_in_vain() EXCLUDES(mutex_);

private:
    struct Leave {
        void operator()(EventChannel *channel) const { channel->leave(); }
    };

    EventChannel(base::Readable readable, std::shared_ptr<Group> group);
    ~EventChannel();
    void leave();
    Event *take() EXCLUDES(mutex_);
    Awaited take_awaited(std::vector<Awaited>::const_iterator one) REQUIRES(mutex_);
    void tell() REQUIRES(mutex_);  // makes fd readable while there are events

    unsigned users_ = 1;  // its creator and the threads in next_of(); guarded by the table's lock
    base::Mutex mutex_;
    base::Readable readable_ GUARDED_BY(mutex_);  // has fd; readable while there are events
    OutsideWait waiters_ GUARDED_BY(mutex_);
    EventQueue events_ GUARDED_BY(mutex_);
    std::vector<Awaited> awaited_ GUARDED_BY(mutex_);  // the oldest first
    base::Shares awaited_shares_ GUARDED_BY(mutex_);   // how many each origin has
    BriefWait looks_ GUARDED_BY(mutex_);               // at awaited connections
    const std::shared_ptr<Group> group_;
};

struct DestroyChannel {
    void operator()(EventChannel *channel) const { EventChannel::destroy(channel); }
};
using OwnChannel = std::unique_ptr<EventChannel, DestroyChannel>;

}  // namespace soft
