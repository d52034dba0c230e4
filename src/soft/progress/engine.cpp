// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/engine: the thread that serves the groups which no other thread serves. standby.cpp has the
// thread that takes over from it.
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "base/error_text.hpp"
#include "base/event.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "base/shared_value.hpp"
#include "base/signals.hpp"
#include "soft/progress/engine_state.hpp"

namespace soft {

namespace {

constexpr int max_events = 64;
// The interval at which the engine checks pollers and deadlines.
constexpr int fast_tick_ms = 1;
constexpr int slow_tick_ms = 50;
// An initiator that writes to a sleeping target often writes again, and a sleep costs more than these looks.
constexpr std::chrono::microseconds engine_spins{30};
// The engine looks so often at senders that hold requests back (transport/sender_link.cpp), as long as they
// go on. It is the time of the calls that a sender makes before it holds any.
constexpr std::chrono::nanoseconds held_for{40'000};

}  // namespace

Engine::Engine(bool is_first) : is_first_{is_first}, state_{std::make_unique<State>()} {}

Engine::~Engine() = default;

// Another group may come when the process has descriptors again.
base::Result<void> Engine::State::open() {
    if (epoll) {
        return {};
    }
    base::Fd set{epoll_create1(EPOLL_CLOEXEC)};
    base::Fd event_of_wake{set ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1};
    epoll_event event{.events = EPOLLIN, .data = {.u64 = wake_key}};
    if (!event_of_wake || epoll_ctl(set.get(), EPOLL_CTL_ADD, event_of_wake.get(), &event) != 0) {
        return base::last_failure();
    }
    wake = std::move(event_of_wake);
    epoll = std::move(set);
    return {};
}

// The caller holds the group's lock, or no other thread knows the group. An engine that cannot have it is as
// it was before.
base::Result<Enrolment> Engine::enrol(Group &group) {
    State &state = *state_;
    base::Lock lock{state.mutex};
    if (auto opened = state.open(); !opened) {
        BASE_LOG_AT(level_of_failure(), "no file descriptors for %s: %s",
                    is_first_ ? "the soft device"
                              : "a further thread of the soft device; the others serve its completion queues",
                    base::error_text(opened.error().number));
        return std::unexpected{opened.error()};
    }
    state.held.reserve(state.groups.size() + 1);
    state.reported.reserve(state.groups.size() + 1);
    Enrolment made{.key = state.next_key++, .tick_node = {}};
    TickedGroups one;
    one.emplace(made.key, group.weak_from_this());
    made.tick_node = one.extract(one.begin());
    state.groups.emplace(made.key, Known{.key = made.key, .group = group.weak_from_this()});
    epoll_event event{.events = 0, .data = {.u64 = made.key}};
    if (epoll_ctl(state.epoll.get(), EPOLL_CTL_ADD, group.epoll_.get(), &event) != 0) {
        BASE_LOG_AT(level_of_failure(), "cannot watch a completion queue: %s", base::error_text(errno));
        state.groups.erase(made.key);
        return base::failure(ENOMEM);
    }
    base::EndedThread::Earlier ended;
    if (state.ready < threads_needed()) {
        ended = state.ended_thread.take();
        start_threads();
    }
    const bool runs = state.ready != 0;
    if (!runs) {
        (void)epoll_ctl(state.epoll.get(), EPOLL_CTL_DEL, group.epoll_.get(), nullptr);
        state.groups.erase(made.key);
    }
    lock.unlock();
    base::EndedThread::join(ended);
    return runs ? base::Result<Enrolment>{std::move(made)} : base::failure(ENOMEM);
}

void Engine::State::forget(int group, std::uint64_t key) {
    (void)epoll_ctl(epoll.get(), EPOLL_CTL_DEL, group, nullptr);
    ticked_groups.erase(key);
    std::erase(held, key);
    if (const auto known = groups.find(key); known != groups.end()) {
        std::erase(reported, &known->second);
        groups.erase(known);
    }
    if (groups.empty()) {
        base::raise_event(wake.get());  // the thread ends with the last group
    }
}

void Engine::withdraw(const Group &group, std::uint64_t key) {
    const base::Lock lock{state_->mutex};
    state_->forget(group.fd(), key);
}

// Forgets a group that another engine will serve. Returns false while a thread of this one serves it, or is
// about to look at what it holds back.
bool Engine::let_go(const Group &group) {
    State &state = *state_;
    const std::uint64_t key = group.enrolment_.key;
    const base::Lock lock{state.mutex};
    if (state.groups.at(key).claimed || std::ranges::find(state.held, key) != state.held.end()) {
        return false;
    }
    state.forget(group.fd(), key);
    return true;
}

void Engine::begin_ticks(Group &group, Ticks how) {
    State &state = *state_;
    const base::Lock lock{state.mutex};
    state.ticked_groups.insert(
        std::move(group.enrolment_.tick_node));  // no effect when it is among them already
    state.tick_every(how == Ticks::Fast ? fast_tick_ms : slow_tick_ms);
}

void Engine::State::tick_every(int ms) {
    if (tick_ms < 0 || tick_ms > ms) {
        tick_ms = ms;
        base::raise_event(wake.get());
    }
}

void Engine::State::report(Known &known) {
    if (!std::exchange(known.reported, true)) {
        const auto first =
            known.is_slow ? reported.begin()
                          : std::ranges::find_if(reported, [](const Known *one) { return !one->is_slow; });
        reported.insert(first, &known);
    }
}

Engine::Known &Engine::State::next_reported() {
    Known &known = *reported.back();
    reported.pop_back();
    known.reported = false;
    return known;
}

void Engine::State::release(Known &known) {
    known.claimed = false;
    const bool reported_again = std::exchange(known.reported_again, false);
    const bool held_again = std::exchange(known.held_again, false);
    if (reported_again) {
        report(known);
    }
    if (held_again) {
        held.push_back(known.key);
    }
    if (reported_again || held_again) {
        base::raise_event(wake.get());
    }
}

// Arms the group for one event, so that the engine does not wake again for events that it, or another thread,
// is already serving; or once for events that are there, and then for each new one.
void Engine::arm(Group &group, Arm how) {
    const std::uint32_t events = how == Arm::Once     ? EPOLLIN | EPOLLONESHOT
                                 : how == Arm::Always ? EPOLLIN | EPOLLET
                                                      : 0U;
    epoll_event event{.events = events, .data = {.u64 = group.enrolment_.key}};
    (void)epoll_ctl(state_->epoll.get(), EPOLL_CTL_MOD, group.epoll_.get(), &event);
}

bool Engine::tell_held(Group &group) {
    {
        const base::Lock lock{state_->mutex};
        if (state_->ending) {
            return false;
        }
        state_->held.push_back(group.enrolment_.key);
    }
    base::raise_event(state_->wake.get());
    return true;
}

// Claims a group, and serves it without the lock. An assistant has no turn.
template <typename Serve>
void Engine::with_claim(Known &known, Turn *turn, const Serve &serve) {
    State &state = *state_;
    state.mutex.assert_held();
    known.claimed = true;
    {
        const base::Unlock unlocked{state.mutex};
        serve();
    }
    if (turn != nullptr) {
        end_turn(*turn);
        known.is_slow = known.is_slow || turn->lost;
    }
    state.release(known);
}

// Has the groups send what their sources hold back. Returns whether it has to look again after a nap: the
// programs that posted much since the last look will post more, and need not wake the thread again.
bool Engine::look_at_held(Turn &turn) {
    State &state = *state_;
    std::shared_ptr<Group> group;  // is destroyed without the lock
    std::size_t kept = 0;
    const base::Lock lock{state.mutex};
    end_turn(turn);
    while (!turn.lost && kept < state.held.size()) {
        Known &known = state.groups.at(state.held[kept]);
        auto next = known.claimed ? nullptr : known.group.lock();
        const bool last_time = state.ending || !next || !next->holds_anew();
        known.held_again = known.claimed;
        if (last_time) {
            state.held.erase(state.held.begin() + static_cast<std::ptrdiff_t>(kept));
        } else {
            ++kept;
        }
        if (next) {
            with_claim(known, &turn, [&] {
                group = std::move(next);
                group->serve_held(last_time);
            });
        }
    }
    return kept != 0;
}

// Sleeps until the next look at what is held, or until there is something else to do.
void Engine::nap() {
    const State &state = *state_;
    pollfd events{.fd = state.assisted.load(std::memory_order_relaxed) ? state.wake.get() : state.epoll.get(),
                  .events = POLLIN,
                  .revents = 0};
    const timespec time{.tv_sec = 0, .tv_nsec = held_for.count()};
    (void)ppoll(&events, 1, &time, nullptr);
}

// Takes the next group after the key of those that the tick looks at. One that another thread serves keeps
// its place.
std::shared_ptr<Group> Engine::take_ticked(std::uint64_t &key) {
    State &state = *state_;
    state.mutex.assert_held();
    TickedGroups &groups = state.ticked_groups;
    for (auto next = groups.upper_bound(key); next != groups.end(); ++next) {
        key = next->first;
        auto group = state.groups.at(key).claimed ? nullptr : next->second.lock();
        if (group) {
            group->enrolment_.tick_node = groups.extract(next);
            return group;
        }
    }
    return nullptr;
}

// Looks at the groups that want ticks, and returns how long the engine may sleep.
int Engine::tick(base::Clock::time_point now, Turn &turn) {
    State &state = *state_;
    base::tell_withheld_lines(now, false);
    std::shared_ptr<Group> group;  // is destroyed without the lock
    bool fast = false;
    std::uint64_t key = State::wake_key;
    const base::Lock lock{state.mutex};
    end_turn(turn);
    if (turn.lost) {
        return -1;
    }
    state.tick_ms = -1;  // a group that wants ticks from here on wakes the thread again
    // Each group is taken out first, so that a group that wants ticks again meanwhile is not lost.
    while (!turn.lost) {
        auto next = take_ticked(key);
        if (!next) {
            break;
        }
        Ticks wanted = Ticks::None;
        with_claim(state.groups.at(key), &turn, [&] {
            group = std::move(next);
            wanted = group->tick(now);
        });
        if (wanted != Ticks::None) {
            state.ticked_groups.insert(std::move(group->enrolment_.tick_node));
            if (turn.lost) {
                state.tick_every(wanted == Ticks::Fast ? fast_tick_ms : slow_tick_ms);
            }
        }
        fast = fast || wanted == Ticks::Fast;
    }
    if (turn.lost) {
        return -1;
    }
    fast = fast || state.tick_ms == fast_tick_ms;  // a group that had its turn above wants them so since
    state.tick_ms = state.ticked_groups.empty() ? -1 : fast ? fast_tick_ms : slow_tick_ms;
    return state.tick_ms;
}

// Serves the groups that the engine's set reports. An assistant has no turn.
Engine::Served Engine::serve_ready(int timeout_ms, Turn *turn) {
    State &state = *state_;
    std::array<epoll_event, max_events> events;
    if (turn != nullptr && timeout_ms != 0) {
        begin_sleep(*turn);
        if (turn->lost) {
            return {};
        }
    }
    const int count = epoll_wait(state.epoll.get(), events.data(), max_events, timeout_ms);
    if (turn != nullptr) {
        end_sleep(*turn);
    }
    Served served{};
    std::shared_ptr<Group> group;  // is destroyed without the lock
    const base::Lock lock{state.mutex};
    for (int i = 0; i < count; ++i) {
        const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
        if (key == State::wake_key) {
            served.woken = true;
        } else if (const auto known = state.groups.find(key); known != state.groups.end()) {
            state.report(known->second);
        }
    }
    if (turn != nullptr) {
        end_turn(*turn);
    }
    while (!state.reported.empty() && (turn == nullptr || !turn->lost)) {
        Known &known = state.next_reported();
        known.reported_again = known.claimed;
        auto next = known.claimed ? nullptr : known.group.lock();
        if (!next) {
            continue;
        }
        with_claim(known, turn, [&] {
            group = std::move(next);
            group->serve_for_engine();
        });
        served.work = true;
    }
    if (turn != nullptr && turn->lost && !state.reported.empty()) {
        base::raise_event(state.wake.get());
    }
    served.more = !state.reported.empty();
    served.over = state.is_over();
    return served;
}

void Engine::assist(std::atomic<base::Clock::time_point> &last) {
    constexpr std::chrono::microseconds seldom{50};
    constexpr std::chrono::microseconds enough{50};  // then the caller's own queue has its turn
    if (state_->watched.load(std::memory_order_relaxed)) {
        return;  // the caller would wait for the memory of others
    }
    const auto now = base::Clock::now();
    if (now - last.exchange(now, std::memory_order_relaxed) > seldom) {
        return;
    }
    state_->assists.fetch_add(1, std::memory_order_relaxed);
    if (!state_->assisted.exchange(true, std::memory_order_relaxed)) {
        base::raise_event(state_->wake.get());
    }
    while (serve_ready(0, nullptr).work && base::Clock::now() - now < enough) {
    }
}

void Engine::end_assistance() {
    if (state_->assisted.load(std::memory_order_relaxed)) {
        base::set_shared(state_->assisted, false);
        base::raise_event(state_->wake.get());
    }
}

// Sleeps until another thread wakes it, or until it is time to check whether the assistant has stopped.
Engine::Served Engine::sleep_beside_assistant(int timeout_ms, Turn &turn) {
    State &state = *state_;
    pollfd wake{.fd = state.wake.get(), .events = POLLIN, .revents = 0};
    begin_sleep(turn);
    const bool woken = !turn.lost && poll(&wake, 1, timeout_ms) > 0;
    end_sleep(turn);
    const unsigned assists = state.assists.load(std::memory_order_relaxed);
    const auto now = base::Clock::now();
    if (std::exchange(turn.known_assists, assists) != assists) {
        turn.assisted_at = now;
    } else if (now - turn.assisted_at >= base::Milliseconds{fast_tick_ms}) {
        base::set_shared(state.assisted, false);
    }
    const base::Lock lock{state.mutex};
    end_turn(turn);
    return {.woken = woken, .more = !state.reported.empty(), .over = state.is_over()};
}

// The first function of each of the engine's threads.
void Engine::run() {
    State &state = *state_;
    pthread_setname_np(pthread_self(), "softrdma");
    (void)prctl(PR_SET_TIMERSLACK, 1000UL);  // in nanoseconds; the default would double a nap
    base::Lock lock{state.mutex};
    while (becomes_engine()) {
        Turn turn{.thread = gettid(), .number = state.turn.load(std::memory_order_relaxed)};
        {
            const base::Unlock unlocked{state.mutex};
            serve(turn);
        }
        if (turn.lost) {
            comes_back();
        }
    }
    state.ended.notify_all();
    const auto earlier = state.ended_thread.follow();
    lock.unlock();
    base::EndedThread::join(earlier);
}

// Serves the groups until there are none, the process ends, or another thread has taken over.
void Engine::serve(Turn &turn) {
    State &state = *state_;
    auto ticked = base::Clock::now();
    auto last_work = ticked;
    int timeout_ms = tick(ticked, turn);
    bool spinning = false;
    bool looks_again = look_at_held(turn);  // at what is held
    bool more = true;                       // the thread before this one may have left groups
    while (!turn.lost) {
        if (looks_again) {
            nap();
        }
        const Served served = state.assisted.load(std::memory_order_relaxed)
                                  ? sleep_beside_assistant(looks_again ? 0 : fast_tick_ms, turn)
                                  : serve_ready(spinning || looks_again || more ? 0 : timeout_ms, &turn);
        if (turn.lost) {
            return;
        }
        more = served.more;
        const auto now = base::Clock::now();
        last_work = served.work ? now : last_work;
        spinning = now - last_work < engine_spins;
        if (served.woken) {
            const base::Lock lock{state.mutex};
            end_turn(turn);
            if (turn.lost) {
                return;
            }
            (void)base::take_event(state.wake.get());
            timeout_ms = state.tick_ms;  // a group may want ticks since the thread fell asleep
            more = !state.reported.empty();
        }
        if (served.woken || looks_again) {
            looks_again = look_at_held(turn);
        }
        if (timeout_ms < 0 && base::log_withholds.load(std::memory_order_relaxed)) {
            timeout_ms = slow_tick_ms;
        }
        if (timeout_ms >= 0 && now - ticked >= base::Milliseconds{timeout_ms}) {
            ticked = now;
            timeout_ms = tick(now, turn);
        }
        if (served.over && !turn.lost) {
            (void)look_at_held(turn);              // a thread may have told of a source since the last look
            base::tell_withheld_lines(now, true);  // unlocked: the sink is a function of the program
            const base::Lock lock{state.mutex};
            end_turn(turn);
            if (!turn.lost && state.is_over()) {
                base::set_shared(thread_, 0);
                base::set_shared(lasting_, 0);
                state.standby_wake.notify_all();
                return;
            }
        }
    }
}

void Engine::begin_end() {
    const base::Lock lock{state_->mutex};
    state_->ending = true;
    if (state_->wake) {
        base::raise_event(state_->wake.get());
    }
    state_->standby_wake.notify_all();
}

// Waits until the threads have ended, or until then.
void Engine::await_end(base::Clock::time_point until) {
    State &state = *state_;
    base::Lock lock{state.mutex};
    while (state.ready != 0 && state.ended.wait_until(state.mutex, until)) {
    }
    const auto last = state.ready != 0 ? std::nullopt : state.ended_thread.take();
    lock.unlock();
    base::EndedThread::join(last);
}

// Joins a thread that has ended, because a forked child inherits its id and cannot join it.
void Engine::join_ended() {
    base::Lock lock{state_->mutex};
    const auto ended = state_->ended_thread.take();
    lock.unlock();
    base::EndedThread::join(ended);
}

}  // namespace soft
