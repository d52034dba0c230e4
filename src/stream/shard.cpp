// SPDX-License-Identifier: BSD-3-Clause
// stream/shard: queues, events and one lock for the streams that one thread began.
#include "stream/shard.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/fork.hpp"

namespace stream {

namespace {

constexpr int completions_at_once = 16;
// A shard's first queue has room for two streams like the one it is opened for. On the soft device it grows
// with their number, so that a look costs the same however many they are. On the kernel's devices, which need
// not be able to resize a queue, each further queue has room for four times as many as the one before. Few
// streams so take little memory, and many streams make few queues to look into.
constexpr std::uint32_t streams_of_first = 2;
constexpr std::uint32_t resize_growth = 2;
constexpr std::uint32_t growth = 4;
// On the kernel's devices only an event tells that a peer is gone, and a program that never sleeps does not
// look at the descriptor. Therefore serve() looks for an event, which is a system call, once in so many
// calls.
constexpr std::uint32_t serves_an_event = 64;

using Shards = std::vector<std::shared_ptr<Shard>>;

Shards &shards_of_this_thread() {
    thread_local Shards own;
    return own;
}

// A child does not destroy its parent's shards, because another thread of the parent may have been changing
// one.
const base::ForkHook stay_with_parent{base::ForkLevel::Stream, {.after_in_child = [] {
                                          if (Shards &own = shards_of_this_thread(); !own.empty()) {
                                              base::leave_to_parent(std::make_unique<Shards>(std::move(own)));
                                              own.clear();
                                          }
                                      }}};

}  // namespace

class Shard::Lane {
public:
    Lane(Queue owned, std::uint32_t size) : queue{std::move(owned)}, completions{size}, free{size} {}

    Queue queue;
    std::uint32_t completions;  // it has room for so many
    std::uint32_t free;
    bool waited_for = false;
    int fd = -1;  // the descriptor to wait for

    // Returns the stream of the connection with that number, or nullptr. Most often it is the one that the
    // last completion was for.
    [[nodiscard]] Member *member_of(std::uint32_t number) {
        return last_ != nullptr && number == last_number_ ? last_ : look_up(number);
    }
    void add(std::uint32_t number, Member &member) { members_.insert_or_assign(number, &member); }
    // Returns the stream that was there, or nullptr.
    Member *remove(std::uint32_t number) {
        Member *const member = member_of(number);
        last_ = nullptr;
        members_.erase(number);
        return member;
    }

private:
    [[gnu::noinline]] Member *look_up(std::uint32_t number) {
        const auto known = members_.find(number);
        last_number_ = number;
        last_ = known != members_.end() ? known->second : nullptr;
        return last_;
    }

    std::unordered_map<std::uint32_t, Member *> members_;
    std::uint32_t last_number_ = 0;
    Member *last_ = nullptr;
};

base::Result<std::shared_ptr<Shard>> Shard::of_this_thread(const Device &device) {
    Shards &own = shards_of_this_thread();
    const auto known =
        std::ranges::find_if(own, [&](const auto &shard) { return &shard->device_ == &device; });
    if (known != own.end()) {
        return *known;
    }
    auto made = make(device);
    if (made) {
        own.push_back(*made);
    }
    return made;
}

base::Result<std::shared_ptr<Shard>> Shard::make(const Device &device) {
    auto events = made_events(device.peer());
    if (!events) {
        return std::unexpected{events.error()};
    }
    int fd = -1;
    if (const int result = rpma_events_wait_begin(events->get(), &fd); result != 0) {
        return failure_of(result);
    }
    (void)rpma_events_wait_end(events->get());
    return std::make_shared<Shard>(device, std::move(*events));
}

std::vector<std::shared_ptr<Shard>> Shard::expecting() {
    std::vector<std::shared_ptr<Shard>> found;
    for (const auto &shard : shards_of_this_thread()) {
        if (shard->expected_.load(std::memory_order_relaxed) != 0) {
            found.push_back(shard);
        }
    }
    return found;
}

bool Shard::serve_those_that_expect() {
    bool any = false;
    for (const auto &shard : shards_of_this_thread()) {
        if (shard->expected_.load(std::memory_order_relaxed) != 0) {
            const base::Lock lock{shard->mutex_};
            any = shard->serve() || any;
        }
    }
    return any;
}

Shard::Shard(const Device &device, Events events)
    : device_{device}, thread_{static_cast<std::uint32_t>(gettid())}, events_{std::move(events)} {}

base::Result<Shard::Lane *> Shard::join(std::uint32_t completions) {
    for (const auto &lane : lanes_) {
        if (lane->free >= completions) {
            lane->free -= completions;
            return lane.get();
        }
    }
    if (!device_.is_of_kernel() && !lanes_.empty() && grow(*lanes_.back(), completions)) {
        lanes_.back()->free -= completions;
        return lanes_.back().get();
    }
    return open_lane(completions);
}

// Returns whether the lane then has room for so many completions more.
bool Shard::grow(Lane &lane, std::uint32_t completions) {
    const std::uint32_t most = device_.limits().max_cq_size;
    const std::uint32_t size =
        std::min(most, std::max(std::min(lane.completions, most / resize_growth) * resize_growth,
                                lane.completions + completions));
    if (size - lane.completions + lane.free < completions || rpma_cq_resize(lane.queue.get(), size) != 0) {
        return false;
    }
    lane.free += size - lane.completions;
    lane.completions = size;
    return true;
}

base::Result<Shard::Lane *> Shard::open_lane(std::uint32_t completions) {
    const std::uint32_t most = device_.limits().max_cq_size;
    const std::uint32_t before = lanes_.empty() || !device_.is_of_kernel() ? 0 : lanes_.back()->completions;
    const std::uint32_t wanted =
        std::max(completions * streams_of_first, std::min(before, most / growth) * growth);
    const std::uint32_t size = std::clamp(wanted, completions, std::max(completions, most));
    auto queue = made<Queue>(rpma_cq_new, device_.peer(), size, RPMA_CQ_UNARMED);
    if (!queue) {
        return std::unexpected{queue.error()};
    }
    // The first wait takes a descriptor. A stream that has begun can wait also when none is left later.
    int fd = -1;
    if (const int result = rpma_cq_wait_begin(queue->get(), &fd); result != 0) {
        return failure_of(result);
    }
    (void)rpma_cq_wait_end(queue->get());
    Lane &lane = *lanes_.emplace_back(std::make_unique<Lane>(std::move(*queue), size));
    lane.free -= completions;
    if (in_device_ != nullptr) {
        in_device_->wake();  // it does not sleep on this one
    }
    return &lane;
}

void Shard::leave(Lane &lane, std::uint32_t completions) {
    lane.free += completions;
}

rpma_cq *Shard::queue_of(const Lane &lane) {
    return lane.queue.get();
}

void Shard::attach(Lane &lane, std::uint32_t number, Member &member) {
    lane.add(number, member);
}

inline void Shard::touch(Member &member) {
    if (!std::exchange(member.touched_, true)) {
        member.next_touched_ = std::exchange(touched_, &member);
    }
}

void Shard::forget_touched(const Member &member) {
    Member **at = &touched_;
    while (*at != nullptr && *at != &member) {
        at = &(*at)->next_touched_;
    }
    if (*at != nullptr) {
        *at = member.next_touched_;
    }
}

// Takes the completions that were in the queue at the call. A peer may go on sending without a pause, so
// later completions are left to the next call. A queue that gives fewer completions than it was asked for is
// empty. It is not asked again, because the device would look at its sockets.
[[gnu::always_inline]] inline void Shard::serve(Lane &lane) {
    std::array<ibv_wc, completions_at_once> completions;
    std::uint32_t taken = 0;
    int count = completions_at_once;
    while (count == completions_at_once && taken < lane.completions &&
           rpma_cq_get_wc(lane.queue.get(), completions_at_once, completions.data(), &count) == 0) {
        taken += static_cast<std::uint32_t>(count);
        for (const ibv_wc &completion : std::span{completions}.first(static_cast<std::size_t>(count))) {
            if (Member *const member = lane.member_of(completion.qp_num)) {
                member->take_completion(completion);
                touch(*member);
            }
        }
    }
}

// Another connection may get the number, so the completions that are left of this one are taken first.
void Shard::detach(Lane &lane, std::uint32_t number) {
    serve(lane);
    if (const Member *const member = lane.remove(number)) {
        forget_touched(*member);
    }
    (void)tell_touched();
}

void Shard::take_events() {
    rpma_event event{};
    while (rpma_events_take(events_.get(), &event) == 0) {
        void *member = nullptr;
        const bool of_request = event.type == RPMA_EVENT_CONN_REQ;
        (void)(of_request ? rpma_conn_req_get_context(event.req, &member)
                          : rpma_conn_get_context(event.conn, &member));
        if (member != nullptr) {
            found_.push_back({.member = static_cast<Member *>(member),
                              .of_request = of_request,
                              .what = event.conn_event});
        }
    }
}

bool Shard::serve() {
    const bool now_and_then = device_.is_of_kernel() && ++serves_ % serves_an_event == 0;
    if (now_and_then || events_came_.load(std::memory_order_relaxed) ||
        expected_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
        return serve_with_events();
    }
    for (const auto &lane : lanes_) {
        serve(*lane);
    }
    // A stream that has failed expects the event of its end now. That may have come before the thread began
    // to wait for events, and then nothing else tells of it.
    return expected_.load(std::memory_order_relaxed) == 0 ? tell_touched() : serve_with_events();
}

// Events are taken first and handed over last: by then the bytes that a peer sent before its end are in the
// queue. When a completion or an event has a stream expect one more event, that may be there already.
[[gnu::noinline]] bool Shard::serve_with_events() {
    unsigned known = 0;
    do {
        known = expectations_;
        events_came_.store(false, std::memory_order_relaxed);
        take_events();
        for (const auto &lane : lanes_) {
            serve(*lane);
        }
        for (const Event &event : found_) {
            if (event.of_request) {
                event.member->take_request_event();
            } else {
                event.member->take_event(event.what);
            }
            touch(*event.member);
        }
        found_.clear();
    } while (expectations_ != known);
    return tell_touched();
}

bool Shard::tell_touched() {
    const bool any = touched_ != nullptr;
    while (touched_ != nullptr) {
        Member *const member = std::exchange(touched_, touched_->next_touched_);
        member->touched_ = false;
        member->go_on();
    }
    return any;
}

// Waits for every queue, also for those that were waited for.
base::Result<void> Shard::arm(std::vector<int> &descriptors) {
    const std::size_t before = descriptors.size();
    int result = 0;
    for (const auto &lane : lanes_) {
        if (!lane->waited_for) {
            result = rpma_cq_wait_begin(lane->queue.get(), &lane->fd);
        }
        if (result != 0) {
            break;
        }
        lane->waited_for = true;
        descriptors.push_back(lane->fd);
    }
    if (result == 0 && !events_waited_for_) {
        result = rpma_events_wait_begin(events_.get(), &events_fd_);
    }
    if (result != 0) {
        descriptors.resize(before);
        return failure_of(result);
    }
    events_waited_for_ = true;
    descriptors.push_back(events_fd_);
    return {};
}

// A watch goes on. The event that woke the thread may have been for the thread that watches, and a device of
// the kernel reports it only once, so the queues are armed again.
void Shard::disarm() {
    if (in_device_ != nullptr || (watches_ != 0 && !device_.is_of_kernel())) {
        return;
    }
    if (std::exchange(events_waited_for_, false)) {
        (void)rpma_events_wait_end(events_.get());
    }
    for (const auto &lane : lanes_) {
        if (std::exchange(lane->waited_for, false)) {
            (void)rpma_cq_wait_end(lane->queue.get());
        }
    }
    if (watches_ != 0) {
        std::vector<int> same;
        (void)arm(same);
    }
}

base::Result<void> Shard::begin_wait(Sleeper &thread, std::vector<int> &descriptors) {
    if (in_device_ == &thread) {
        // A signal handler that has interrupted a wait of this thread waits too. No other thread would wake
        // it, so it sleeps on the device's descriptors.
        disarm();
        auto armed = arm(descriptors);
        nested_waits_ += armed ? 1 : 0;
        return armed;
    }
    if (in_device_ != nullptr) {
        others_.push_back(&thread);
        return {};
    }
    auto armed = arm(descriptors);
    if (armed) {
        in_device_ = &thread;
    } else {
        disarm();
    }
    return armed;
}

void Shard::end_wait(Sleeper &thread) {
    if (in_device_ == &thread && nested_waits_ != 0) {
        --nested_waits_;
        return;
    }
    if (in_device_ == &thread) {
        in_device_ = nullptr;
        disarm();
    } else {
        std::erase(others_, &thread);
    }
    if (in_device_ == nullptr && !others_.empty()) {
        others_.front()->wake();
    }
}

base::Result<void> Shard::begin_watch(std::vector<int> &descriptors, bool again) {
    if (again) {
        disarm();
    }
    auto armed = arm(descriptors);
    watches_ += armed && !again ? 1 : 0;
    if (!armed) {
        disarm();
    }
    return armed;
}

void Shard::end_watch() {
    --watches_;
    disarm();
}

}  // namespace stream
