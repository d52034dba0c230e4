// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/progress: groups. How they are made and get an engine is in engines.cpp, the engine in
// engine.cpp, threads that wait for a group in group_wait.cpp.
#include "soft/progress/progress.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <new>

#include "base/error_text.hpp"
#include "base/log.hpp"

namespace soft {

namespace {

// Up to this many sources are checked directly, which is cheaper than asking epoll.
constexpr std::size_t direct_sources = 2;
constexpr int events_a_turn = 64;

constexpr unsigned most_missed_ticks = 16;

// The engine leaves a group alone when a thread looks at it at least this often: no peer waits long for it,
// and the engine's thread would only take its processor. The looks are counted over at least `counted`.
constexpr std::chrono::microseconds often{250};
constexpr std::chrono::milliseconds counted{1};

std::uint32_t epoll_events(Interest interest) {
    return (interest.readable ? EPOLLIN : 0U) | (interest.writable ? EPOLLOUT : 0U) |
           (interest.ended ? EPOLLRDHUP : 0U);
}

}  // namespace

Group::Group(base::Fd epoll) : epoll_{std::move(epoll)} {}

Group::~Group() {
    Engine *const engine = engine_.load(std::memory_order_acquire);
    if (engine == nullptr || inherited()) {
        return;
    }
    if (is_spread_) {
        engine->spread_groups_.fetch_sub(1, std::memory_order_relaxed);
    }
    engine->withdraw(*this, enrolment_.key);
}

void Group::add(Source &source, int fd, Interest interest) {
    assert(source.place_ == Source::nowhere);
    sources_.push_back(&source);
    source.place_ = sources_.size() - 1;
    change(source, fd, Interest{}, interest);
    if (sources_.size() == direct_sources + 1) {
        for (Source *const one : sources_) {
            let_rest(*one);
        }
    }
}

void Group::remove(Source &source, int fd) {
    clear_deadline(source);
    const std::size_t place = std::exchange(source.place_, Source::nowhere);
    if (place == Source::nowhere) {
        return;
    }
    std::ranges::replace(due_, &source, nullptr);
    nudges_.forget(source);
    lively_.remove(source);
    sources_[place] = sources_.back();
    sources_.pop_back();
    if (place < sources_.size()) {
        sources_[place]->place_ = place;
    }
    if (!inherited()) {
        (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd,
                        nullptr);  // it was not in the set when it waited for nothing
    }
}

// A source that waits for nothing is taken out of the set, because epoll would always report a hang-up.
void Group::change(Source &source, int fd, Interest from, Interest to) {
    if (from == to || inherited()) {
        return;
    }
    const bool was_in = from != Interest{};
    const bool is_in = to != Interest{};
    epoll_event event{.events = epoll_events(to), .data = {.ptr = &source}};
    const int operation = !is_in ? EPOLL_CTL_DEL : was_in ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0) {
        BASE_LOG(Error, "cannot watch socket %d: %s", fd, base::error_text(errno));
    }
}

void Group::set_deadline(Source &source, base::Clock::time_point deadline) {
    clear_deadline(source);
    source.unused_deadline_.value().first = deadline;
    timed_.insert(std::move(source.unused_deadline_));
    source.deadline_ = deadline;
    want_ticks(Ticks::Slow);
}

void Group::clear_deadline(Source &source) {
    if (source.deadline_) {
        source.unused_deadline_ = timed_.extract({*source.deadline_, &source});
        source.deadline_.reset();
    }
}

[[gnu::hot]] Buffer Group::borrow_buffer(std::size_t size) {
    if (spare_.size == size) {
        return std::exchange(spare_, {});
    }
    return {.bytes = std::unique_ptr<std::byte[]>{new (std::nothrow) std::byte[size]}, .size = size};
}

[[gnu::hot]] void Group::give_back(Buffer buffer) {
    spare_ = std::move(buffer);
}

bool Group::take_long_turn(base::Origin origin) {
    const auto took = std::span{took_long_}.first(times_long_);
    if (took.size() == most_long || std::ranges::find(took, origin) != took.end()) {
        return false;
    }
    took_long_[times_long_++] = origin;
    return true;
}

// A source may remove itself and others, or add others, while it makes progress.
[[gnu::hot]] void Group::serve() {
    times_long_ = 0;
    std::array<Source *, Lively::most + std::size_t{2} * events_a_turn> now;
    std::size_t count = 0;
    const bool relies = rule().relies;
    const bool few = sources_.size() <= direct_sources;
    if (!few) {
        const Lively::Taken lively = relies ? Lively::Taken{} : lively_.take(now);
        count = lively.count;
        if (lively.quiet != nullptr) {
            put_to_rest(*lively.quiet);
        }
        count += lively.alone ? 0 : take_reported(std::span{now}.subspan(count));
    } else {
        for (Source *const source : sources_) {
            now[count++] = source;
            if (Link *const link = relies ? source->link_to_rest() : nullptr) {
                link->reported();
            }
        }
    }
    if (sources_.size() != 1 || !sources_.front()->group_keeps_left_) {
        if (relies) {
            nudges_.hush();
        }
        if (nudges_.any()) {
            const std::size_t nudged = nudges_.take(std::span{now}.subspan(count));
            count += few ? 0 : nudged;  // few sources have their turn in any case
        }
    }
    due_ = std::span{now}.first(count);
    for (Source *const source : due_) {
        if (source != nullptr) {
            source->progress();
        }
    }
    if (relies || sources_.size() > direct_sources) {
        for (Source *const source : due_) {
            if (source != nullptr) {
                let_rest(*source);
            }
        }
    }
    due_ = {};
}

// Puts the sources whose descriptors have an event into `to`, which has room for events_a_turn, and returns
// their number.
[[gnu::hot]] std::size_t Group::take_reported(std::span<Source *> to) {
    std::array<epoll_event, events_a_turn> events;
    const int count = epoll_wait(epoll_.get(), events.data(), events_a_turn, 0);
    const auto found = std::span{events}.first(static_cast<std::size_t>(std::max(count, 0)));
    for (std::size_t i = 0; i < found.size(); ++i) {
        to[i] = static_cast<Source *>(found[i].data.ptr);
        if (Link *const link = to[i] != nullptr ? to[i]->link_to_rest() : nullptr) {
            link->reported();
        }
    }
    return found.size();
}

base::Result<void> Group::allow_nudges() {
    const base::Lock lock{mutex_};
    if (nudges_.is_open()) {
        return {};
    }
    if (!nudges_.open()) {
        return base::last_failure();
    }
    auto added = add_descriptor(nudges_.fd());
    if (!added) {
        nudges_.close();
    }
    return added;
}

// While no thread sleeps, the group looks at its few sources, or at the lively ones.
[[gnu::hot]] void Group::let_rest(Source &source) {
    const bool is_looked_at =
        !rule().relies && (sources_.size() <= direct_sources || lively_.has(source) || lively_.add(source));
    if (!is_looked_at) {
        put_to_rest(source);
    }
}

[[gnu::hot]] void Group::put_to_rest(Source &source) {
    if (Link *const link = source.link_to_rest(); link != nullptr && !link->rest()) {
        nudge(source);
    }
}

void Group::on(OwnerEvent event) {
    const Owner before = ownership_.owner();
    ownership_.on(event);
    const Owner owner = ownership_.owner();
    if (owner == before) {
        return;
    }
    if (rule().relies && !rule_of(before).relies) {
        begin_to_rely();
    }
    arm(rule().arm);
    want_ticks(rule().ticks);
}

void Group::keep(OwnerEvent event) {
    kept_ = true;
    on(event);
}

std::span<Source *const> Group::looked_at() const {
    return sources_.size() <= direct_sources ? std::span<Source *const>{sources_} : lively_.all();
}

// A poller needed no descriptor of those sources at which it looked.
void Group::begin_to_rely() {
    for (Source *const source : looked_at()) {
        put_to_rest(*source);
    }
    nudges_.settle();
}

[[gnu::hot]] void Group::poll(bool spinning) {
    if (inherited()) {
        return;
    }
    if (!mutex_.try_lock()) {
        return;  // the thread that has it does this caller's work
    }
    const base::Lock lock{mutex_, base::adopt};
    if (spinning && ownership_.is_alone()) {
        keep(OwnerEvent::Polls);
    }
    looks_.count.fetch_add(1, std::memory_order_relaxed);
    if (spinning) {
        serve();
    } else {
        serve_once();
    }
}

// The caller may sleep next, as a program does that looks before it waits, and may then do what the only
// source has left. After some looks it is one that does not sleep.
void Group::serve_once() {
    constexpr unsigned most_looks = 4;
    Source *const lone = sources_.size() == 1 ? sources_.front() : nullptr;
    if (lone == nullptr || !lone->has_left() || ++lone->looks_at_left_ > most_looks) {
        serve();
        return;
    }
    lone->group_keeps_left_ = true;
    serve();  // leaves the nudge to the next thread
    for (Source *const source : sources_) {
        source->group_keeps_left_ = false;
    }
}

void Group::hand_over() {
    if (inherited()) {
        return;
    }
    const base::Lock lock{mutex_};
    leave_to_engine();
}

void Group::leave_to_engine() {
    serve_held_here();
    looks_.are_often = false;  // earlier looks do not count
    looks_.counted = looks();
    looks_.counted_since = base::Clock::now();
    on(OwnerEvent::Leaves);
}

// Without this a program that writes, polls until that is acknowledged, and then looks at its memory until
// its peer has written (ib_write_lat) would wait for the engine's tick each time, because its polls have
// made it the owner.
bool Group::leave_if_unawaited() {
    const base::Lock lock{mutex_};
    base::set_shared(may_be_left_, false);
    if (!ownership_.is_alone() || std::ranges::any_of(looked_at(), &Source::is_awaited)) {
        return false;
    }
    leave_to_engine();
    return true;
}

base::Result<void> Group::add_descriptor(int fd) const {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        return base::last_failure();
    }
    return {};
}

void Group::serve_for_engine() {
    const base::Lock lock{mutex_};
    if (armed_ == Arm::Once) {
        armed_ = Arm::No;
    }
    if (ownership_.is_outside()) {
        learn_looks(base::Clock::now());
    }
    on(OwnerEvent::Woken);
    if (!rule().engine_serves) {
        return;
    }
    serve();
    if (ownership_.owner() == Owner::Absent) {
        want_ticks(has_ready_source() ? Ticks::Slow : Ticks::None);
    } else if (is_looked_at_often(base::Clock::now())) {
        keep(OwnerEvent::PollsOften);
    } else {
        arm(Arm::Once);
    }
}

bool Group::tell_held(Source &source) {
    nudges_.add(source);
    times_held_.fetch_add(1, std::memory_order_relaxed);
    if (engine_told_.exchange(true, std::memory_order_acq_rel) || engine().tell_held(*this)) {
        return true;
    }
    engine_told_.store(false, std::memory_order_relaxed);
    return false;
}

// Is called when the caller is about to sleep on a descriptor of its own. The engine would do it later.
void Group::serve_held_here() {
    if (engine_told_.load(std::memory_order_relaxed)) {
        serve();
    }
}

bool Group::holds_anew() {
    const unsigned times = times_held_.load(std::memory_order_relaxed);
    return std::exchange(times_known_, times) != times;
}

// The exchange reads what a call of tell_held() has stored that did not tell the engine, so this look finds
// its source.
void Group::serve_held(bool last_time) {
    if (last_time) {
        engine_told_.exchange(false, std::memory_order_acq_rel);
    }
    if (!nudges_.any()) {
        return;  // a thread has looked meanwhile
    }
    const base::Lock lock{mutex_};
    serve();
}

// The thread that has the lock serves the group; to wait for the lock would cost that thread a system call
// and its processor. Deadlines, which are not exact, wait too, but not for ever.
Ticks Group::tick(base::Clock::time_point now) {
    if (!mutex_.try_lock()) {
        if (++missed_ticks_ < most_missed_ticks) {
            return Ticks::Fast;
        }
        mutex_.lock();
    }
    const base::Lock lock{mutex_, base::adopt};
    missed_ticks_ = 0;
    const bool kept = is_looked_at_often(now) || kept_;
    kept_ = false;
    if (!kept && ownership_.owner() == Owner::Poller) {
        on(OwnerEvent::Stops);
    }
    while (!timed_.empty() && timed_.begin()->first <= now) {
        Source *source = timed_.begin()->second;
        clear_deadline(*source);
        due_ = {&source, 1};  // remove() clears `source` when expire() takes it out of the group
        source->expire();
        if (source != nullptr) {
            let_rest(*source);
        }
    }
    due_ = {};
    const Ticks own = ownership_.is_outside() ? look_after_outside(now) : rule().ticks;
    // A thread that is asleep and often ends its wait would otherwise ask for fast ticks each time.
    const bool is_back_soon = kept && ownership_.owner() != Owner::Engine;
    ticks_ = is_back_soon ? Ticks::Fast : timed_.empty() ? own : std::max(own, Ticks::Slow);
    return ticks_;
}

// Is called by the engine. When the last count is not old enough, it continues that count and returns the
// earlier result.
bool Group::is_looked_at_often(base::Clock::time_point now) {
    if (const auto time = now - looks_.counted_since; time >= counted) {
        const unsigned count = looks();
        looks_.are_often = (count - std::exchange(looks_.counted, count)) * often >= time;
        looks_.counted_since = now;
    }
    return looks_.are_often;
}

void Group::want_ticks(Ticks how) {
    if (ticks_ < how) {
        ticks_ = how;
        engine().begin_ticks(*this, how);
    }
}

void Group::arm(Arm how) {
    if (std::exchange(armed_, how) != how) {
        engine().arm(*this, how);
    }
}

}  // namespace soft
