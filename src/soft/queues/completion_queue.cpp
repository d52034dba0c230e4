// SPDX-License-Identifier: BSD-3-Clause
#include "soft/queues/completion_queue.hpp"
#include "base/shared_value.hpp"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/log.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

// A poller that found nothing this often in a row spins. A poller that only looks, and then waits for
// something else, perhaps for a byte in its memory, still needs the engine. After a request for a
// notification the number is larger.
constexpr unsigned polls_of_a_spinner = 8;
constexpr unsigned polls_of_a_spinner_to_notify = 64;
// After this many polls the poller is idle: it does the engine's work with every polls_for_oneself-th poll.
constexpr unsigned polls_of_an_idler = 1024;
constexpr unsigned polls_for_oneself = 8;

std::atomic<std::uint32_t> next_handle{1};

// The queue for which this thread serves groups and takes the completions itself, so that no other thread
// need be woken for them.
thread_local const CompletionQueue *served_here = nullptr;

std::uint64_t nanoseconds(clockid_t clock) {
    constexpr std::uint64_t in_a_second = 1'000'000'000;
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * in_a_second + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

CompletionQueue::CompletionQueue(std::size_t entries, std::shared_ptr<Group> group)
    : ibv_cq_ex{}, ring_{entries}, group_{std::move(group)} {
    handle = next_handle.fetch_add(1, std::memory_order_relaxed);
    pthread_mutex_init(&mutex, nullptr);
    pthread_cond_init(&cond, nullptr);
}

base::Result<CompletionQueue *> CompletionQueue::create(ibv_context *context, int entries, void *cq_context,
                                                        ibv_comp_channel *channel) {
    if (channel != nullptr && static_cast<CompletionChannel *>(channel)->inherited()) {
        return base::failure(EINVAL);
    }
    auto group = Group::create();
    if (!group) {
        return std::unexpected{group.error()};
    }
    const auto given = limits::granted_entries(static_cast<std::uint32_t>(entries));
    std::unique_ptr<CompletionQueue> queue{new CompletionQueue{given, std::move(*group)}};
    queue->context = context;
    queue->channel = channel;
    queue->cq_context = cq_context;
    queue->cqe = static_cast<int>(given);
    if (channel != nullptr) {
        static_cast<CompletionChannel *>(channel)->attach(*queue);
    }
    return queue.release();
}

CompletionQueue::~CompletionQueue() {
    pthread_cond_destroy(&cond);
    pthread_mutex_destroy(&mutex);
}

// `note` is called for each completion that is taken.
template <typename Note>
[[gnu::always_inline]] inline int CompletionQueue::take_noted(int entries, ibv_wc *completions, Note note) {
    if (!has_entries_.load(std::memory_order_relaxed)) {
        return 0;  // a poller that spins does not take the lock in vain
    }
    const base::Lock lock{mutex_};
    int taken = 0;
    Entry released{.completion = {}, .queue_pair = nullptr, .slots = 0, .queue = WorkQueue::Send};
    const auto release = [&released] {
        if (released.queue_pair != nullptr) {
            released.queue_pair->release(released.queue, released.slots);
        }
    };
    const int most =
        std::min(entries, static_cast<int>(ring_.size()));  // a program may ask for less than none
    for (; taken < most; ++taken) {
        const Entry &entry = ring_.at(static_cast<unsigned>(taken));
        completions[taken] = entry.completion;
        note();
        if (entry.queue_pair == released.queue_pair && entry.queue == released.queue) {
            released.slots += entry.slots;
        } else {
            release();
            released.queue_pair = entry.queue_pair;
            released.queue = entry.queue;
            released.slots = entry.slots;
        }
    }
    ring_.pop(static_cast<unsigned>(taken));
    release();
    if (ring_.empty()) {
        base::set_shared(has_entries_, false);
    }
    waiters_.tell(!ring_.empty());
    return taken;
}

[[gnu::hot]] int CompletionQueue::take(int entries, ibv_wc *completions) {
    return take_noted(entries, completions, [] {});
}

// Polls for one completion and its time stamp.
int CompletionQueue::poll_stamped() {
    const auto take_one = [this] {
        return take_noted(1, &read_, [this] {
            mutex_.assert_held();
            read_stamp_ = stamps_[ring_.front_place()];
        });
    };
    return poll_by(take_one);
}

[[gnu::hot]] void CompletionQueue::serve(bool spinning) {
    if (!waiters_.any()) {
        group_->poll(spinning);
    } else if (!wait_begun_.exchange(false, std::memory_order_relaxed)) {
        served_here = this;
        group_->poll(false);
        served_here = nullptr;
    }
}

// Relaxed is enough: these are a poller's own counters, and only a hint.
template <typename Take>
[[gnu::hot, gnu::noinline]] int CompletionQueue::serve_and(Take take) {
    const unsigned empty_polls = empty_polls_.fetch_add(1, std::memory_order_relaxed) + 1;
    const bool spinning =
        empty_polls > (wants_notification() ? polls_of_a_spinner_to_notify : polls_of_a_spinner);
    serve(spinning);
    for_other_groups([&](const auto &other) { other->poll(spinning); });
    const int taken = take();
    if (taken == 0 && empty_polls > polls_of_an_idler && empty_polls % polls_for_oneself == 0) {
        group_->engine().assist(last_assist_);
    }
    return taken;
}

template <typename Take>
[[gnu::hot, gnu::always_inline]] inline int CompletionQueue::poll_by(Take take) {
    if (inherited()) {
        return -1;  // its queue pairs may be gone, and have not removed themselves from the completions here
    }
    int taken = take();
    if (taken == 0) {
        taken = serve_and(take);
    }
    if (taken != 0) {
        end_vain_polls();
    }
    return taken;
}

[[gnu::hot, gnu::flatten]] int CompletionQueue::poll(int entries, ibv_wc *completions) {
    return poll_by([this, entries, completions] { return take(entries, completions); });
}

// Is called when a poll has taken completions.
[[gnu::hot]] void CompletionQueue::end_vain_polls() {
    forget_empty_polls();
    if (group_->leave_unawaited()) {
        end_assistance();
    }
}

// A program asks for a notification before it sleeps. The engine then takes over, unless the program sleeps
// in next_event().
int CompletionQueue::request_notification(bool solicited_only) {
    if (inherited()) {
        return EINVAL;
    }
    {
        const base::Lock lock{mutex_};
        if (notify_.load(std::memory_order_relaxed) != Notify::Any) {
            base::set_shared(notify_, solicited_only ? Notify::Solicited : Notify::Any);
        }
    }
    stop_spinning();
    const auto *const events = static_cast<CompletionChannel *>(channel);
    if (events == nullptr || !events->sleeps_here_.load(std::memory_order_relaxed)) {
        group_->hand_over();
        for_other_groups([](const auto &other) { other->hand_over(); });
    }
    return 0;
}

void CompletionQueue::forget_empty_polls() {
    if (empty_polls_.load(std::memory_order_relaxed) != 0) {
        base::set_shared(empty_polls_, 0);
    }
}

void CompletionQueue::stop_spinning() {
    forget_empty_polls();
    end_assistance();
}

void CompletionQueue::end_assistance() {
    if (last_assist_.exchange({}, std::memory_order_relaxed) != base::Clock::time_point{}) {
        group_->engine().end_assistance();
    }
}

// Meanwhile the engine serves the other groups that receive for this queue.
base::Result<int> CompletionQueue::begin_wait() {
    if (inherited()) {
        return base::failure(EINVAL);
    }
    {
        const base::Lock lock{mutex_};
        if (auto begun = waiters_.begin(*group_); !begun) {
            return std::unexpected{begun.error()};
        }
    }
    stop_spinning();
    group_->begin_outside();
    for_other_groups([](const auto &other) { other->hand_over(); });
    base::set_shared(wait_begun_, true);
    return group_->fd();
}

base::Result<void> CompletionQueue::end_wait() {
    if (inherited()) {
        return base::failure(EINVAL);
    }
    {
        const base::Lock lock{mutex_};
        if (!waiters_.end()) {
            return base::failure(EINVAL);
        }
    }
    base::set_shared(wait_begun_, false);
    group_->end_outside();
    return {};
}

bool CompletionQueue::push(const ibv_wc &completion, Completing &queue_pair, WorkQueue queue, unsigned slots,
                           bool solicited) {
    bool pushed = false;
    push_many([&](const auto &push) {
        pushed = push([&] { return completion; }, queue_pair, queue, slots, solicited);
    });
    return pushed;
}

void CompletionQueue::tell_waiters() {
    if (served_here != this) {
        waiters_.tell(!ring_.empty());
    }
}

void CompletionQueue::notify_channel() {
    if (channel != nullptr) {
        static_cast<CompletionChannel *>(channel)->notify(*this);
    }
}

bool CompletionQueue::watch_pushed(const Entry &pushed) {
    if (faults_ != nullptr && pushed.completion.status == IBV_WC_SUCCESS &&
        faults_->fills(handle, pushes_++)) {
        ring_.pop_back();
        tell_overrun();
        return false;
    }
    if (stamps_ != nullptr) {
        stamps_[ring_.place_of(pushed)] = {.raw = nanoseconds(CLOCK_MONOTONIC),
                                           .wallclock = nanoseconds(CLOCK_REALTIME)};
    }
    return true;
}

// Is called when the ring has no room for a completion, or an injected fault says so.
void CompletionQueue::tell_overrun() {
    if (std::exchange(overrun_, true)) {
        return;
    }
    if (ring_.full()) {
        BASE_LOG(Error, "completion queue overrun: all %zu entries wait to be polled; make the queue larger",
                 ring_.capacity());
    }
    async_events_of(*context).push(IBV_EVENT_CQ_ERR, ibv_cq_ex_to_cq(this));
}

void CompletionQueue::forget(const Completing &queue_pair) {
    const base::Lock lock{mutex_};
    for (std::size_t i = 0; i < ring_.size(); ++i) {
        if (ring_.at(i).queue_pair == &queue_pair) {
            ring_.at(i).queue_pair = nullptr;
        }
    }
}

void CompletionQueue::remove(const Completing &queue_pair) {
    const base::Lock lock{mutex_};
    const auto place = [this](std::size_t index) {
        mutex_.assert_held();
        return ring_.place_of(ring_.at(index));
    };
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ring_.size(); ++i) {
        if (ring_.at(i).queue_pair == &queue_pair) {
            continue;
        }
        ring_.at(kept) = ring_.at(i);
        if (stamps_ != nullptr) {
            stamps_[place(kept)] = stamps_[place(i)];
        }
        ++kept;
    }
    while (ring_.size() > kept) {
        ring_.pop_back();
    }
    base::set_shared(has_entries_, kept != 0);
    waiters_.tell(kept != 0);
}

void CompletionQueue::serve_also(const std::shared_ptr<Group> &group) {
    const base::Lock lock{mutex_};
    auto others = others_ ? std::make_shared<Others>(*others_) : std::make_shared<Others>();
    if (const auto known = std::ranges::find(*others, group, &Other::group); known != others->end()) {
        ++known->queue_pairs;
    } else {
        others->push_back({.group = group, .queue_pairs = 1});
    }
    publish(std::move(others));
}

void CompletionQueue::stop_serving(const std::shared_ptr<Group> &group) {
    const base::Lock lock{mutex_};
    if (--std::ranges::find(*others_, group, &Other::group)->queue_pairs != 0) {
        return;
    }
    try {
        auto others = std::make_shared<Others>(*others_);
        std::erase_if(*others, [](const Other &other) { return other.queue_pairs == 0; });
        publish(std::move(others));
    } catch (const std::bad_alloc &) {
        BASE_LOG(Warning, "out of memory: a completion queue goes on serving a group it has no need to");
    }
}

// The list is replaced as a whole, so a poller takes a reference to it and allocates nothing.
void CompletionQueue::publish(std::shared_ptr<Others> others) {
    has_others_.store(!others->empty(), std::memory_order_release);
    others_ = std::move(others);
}

std::shared_ptr<const CompletionQueue::Others> CompletionQueue::others() {
    // Acquire pairs with publish(). This check saves the lock when there are no other groups.
    if (!has_others_.load(std::memory_order_acquire)) {
        return nullptr;
    }
    const base::Lock lock{mutex_};
    return others_;
}

int CompletionQueue::resize(int entries) {
    if (inherited()) {
        return EINVAL;
    }
    const auto given = limits::granted_entries(static_cast<std::uint32_t>(entries));
    base::Ring<Entry> larger{given};
    const base::Lock lock{mutex_};
    if (ring_.size() > larger.capacity()) {
        return EINVAL;
    }
    auto stamps = stamps_ != nullptr ? std::make_unique_for_overwrite<Stamp[]>(larger.places()) : nullptr;
    for (; !ring_.empty(); ring_.pop()) {
        if (stamps != nullptr) {
            stamps[larger.next_place()] = stamps_[ring_.front_place()];
        }
        larger.push(ring_.front());
    }
    ring_ = std::move(larger);
    stamps_ = std::move(stamps);
    cqe = static_cast<int>(given);
    return 0;
}

void CompletionQueue::acknowledge(unsigned events) {
    if (inherited()) {
        return;
    }
    pthread_mutex_lock(&mutex);
    comp_events_completed += events;
    unacknowledged_events_ -= std::min(events, unacknowledged_events_);
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
}

void CompletionQueue::leave_channel() {
    // After a fork the parent uses the channel's descriptor too.
    if (channel == nullptr || inherited()) {
        return;
    }
    static_cast<CompletionChannel *>(channel)->detach(*this);
    pthread_mutex_lock(&mutex);
    while (unacknowledged_events_ != 0) {
        pthread_cond_wait(&cond, &mutex);
    }
    pthread_mutex_unlock(&mutex);
}

}  // namespace soft
