// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/standby: the thread that takes over when the engine waits for memory in one group.
//
// A thread that sends from memory, or receives into it, waits when its page is not there and storage is slow,
// or does not answer. No system call tells that before, so the standby looks whether the engine has ended a
// turn since the last look. If it has not, and does not sleep, the standby is the engine from then on, and
// starts the next standby. The other thread keeps the claim and the lock of that one group. When it comes
// back it becomes the standby, if there is none, or ends; the first thread always becomes the standby, and
// another one ends for it, because peers on this host know its number. So there are two threads more than
// groups in which a thread waits.
//
// Nothing depends on the guess. An engine that was slow, or did not run, finds at the end of its turn that
// another thread is the engine, and what it has taken from the epoll set is in State::reported for that one.
//
// The standby costs nothing while the engine sleeps. It rests then, until the engine wakes it: once in two
// looks at most, because it rests only when the engine has slept from one look to the next.
#include <unistd.h>

#include <cerrno>

#include "base/error_text.hpp"
#include "base/event.hpp"
#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "base/signals.hpp"
#include "soft/progress/engine_state.hpp"

namespace soft {

namespace {

// The other groups wait for one or two of these.
constexpr std::chrono::milliseconds standby_look{20};

}  // namespace

unsigned Engine::threads_needed() const {
    return state_->watched.load(std::memory_order_relaxed) ? 2 : 1;
}

// Starts the threads that are missing. The program's threads handle the signals, and not these.
void Engine::start_threads() {
    State &state = *state_;
    state.mutex.assert_held();
    while (state.ready < threads_needed()) {
        const int error = base::start_thread<&Engine::run>(*this, base::signals_from_outside());
        if (error != 0) {
            const bool is_standby = state.ready != 0;
            BASE_LOG_AT(is_standby ? base::LogLevel::Error : level_of_failure(),
                        "cannot start the soft device's %sthread: %s%s%s",
                        is_standby  ? "second "
                        : is_first_ ? ""
                                    : "further ",
                        base::error_text(error),
                        error == EAGAIN
                            ? " (expected that its user, or its cgroup, may have one more: ulimit -u, "
                              "pids.max)"
                            : "",
                        is_standby  ? "; a connection whose storage does not answer stops the others until "
                                      "the next completion queue is made"
                        : is_first_ ? ""
                                    : "; the others serve its completion queues");
            return;
        }
        ++state.ready;
    }
}

void Engine::watch() {
    State &state = *state_;
    const base::Lock lock{state.mutex};
    base::set_shared(state.watched, true);
    if (!state.groups.empty()) {
        base::raise_event(state.wake.get());  // the engine tells of its sleep from now on
        start_threads();
    }
}

// Returns true when this thread is the engine, and false when it is to end.
bool Engine::becomes_engine() {
    State &state = *state_;
    state.mutex.assert_held();
    while (!state.is_over() && !is_surplus()) {
        if (thread_.load(std::memory_order_relaxed) == 0) {
            base::set_shared(thread_, gettid());
            if (lasting_.load(std::memory_order_relaxed) == 0) {
                base::set_shared(lasting_, gettid());
            }
            state.turn.fetch_add(2 - state.turn.load(std::memory_order_relaxed) % 2);
        }
        if (thread_.load(std::memory_order_relaxed) == gettid()) {
            return true;
        }
        stand_by();
    }
    --state.ready;
    return false;
}

// Returns whether there are more threads than are needed, of which this one need not last.
bool Engine::is_surplus() const {
    state_->mutex.assert_held();
    return state_->ready > threads_needed() && lasting_.load(std::memory_order_relaxed) != gettid();
}

// Returns whether there is another thread that is the engine, and this one is needed beside it.
bool Engine::has_to_stand_by() const {
    state_->mutex.assert_held();
    return !state_->is_over() && !is_surplus() && thread_.load(std::memory_order_relaxed) != 0;
}

// Returns when this thread has taken over, or there is no engine, or nothing more to do.
void Engine::stand_by() {
    State &state = *state_;
    state.mutex.assert_held();
    auto seen = state.turn.load();
    auto look_at = base::Clock::now() + standby_look;
    while (has_to_stand_by()) {
        // The last group, or the engine, may have gone during a wait that its time has ended.
        if (state.standby_wake.wait_until(state.mutex, look_at) || !has_to_stand_by()) {
            continue;
        }
        if (const auto turn = state.turn.load(); turn != seen) {
            seen = turn;
        } else if (turn % 2 != 0) {
            rest(turn);
            seen = state.turn.load();
        } else if (take_over(turn)) {
            return;
        }
        look_at = base::Clock::now() + standby_look;
    }
}

// Waits until the engine, which sleeps, wakes. The order with end_sleep() is sequentially consistent: either
// the engine sees that this thread rests, or this thread sees that the engine is awake.
void Engine::rest(std::uint64_t turn) {
    State &state = *state_;
    state.mutex.assert_held();
    state.standby_rests.store(true);
    while (state.turn.load() == turn && has_to_stand_by()) {
        state.standby_wake.wait(state.mutex);
    }
    base::set_shared(state.standby_rests, false);
}

bool Engine::take_over(std::uint64_t turn) {
    State &state = *state_;
    state.mutex.assert_held();
    if (!state.turn.compare_exchange_strong(turn, turn + 2)) {
        return false;  // it has just come back
    }
    base::set_shared(thread_, gettid());
    --state.ready;
    start_threads();
    return true;
}

// Is called when a thread has lost its turn.
void Engine::comes_back() {
    State &state = *state_;
    state.mutex.assert_held();
    ++state.ready;
    state.standby_wake.notify_all();  // one ends if there are too many now
}

// Finds out whether this thread is still the engine, and tells the standby that it goes on.
void Engine::end_turn(Turn &turn) {
    State &state = *state_;
    state.mutex.assert_held();
    turn.lost = thread_.load(std::memory_order_relaxed) != turn.thread;
    if (!turn.lost && state.watched.load(std::memory_order_relaxed)) {
        turn.number += 2;
        base::set_shared(state.turn, turn.number);
    }
}

void Engine::begin_sleep(Turn &turn) {
    if (state_->watched.load(std::memory_order_relaxed)) {
        turn.lost = !state_->turn.compare_exchange_strong(turn.number, turn.number + 1);
        ++turn.number;
    }
}

void Engine::end_sleep(Turn &turn) {
    State &state = *state_;
    if (turn.number % 2 == 0 || turn.lost) {
        return;
    }
    (void)state.turn.compare_exchange_strong(turn.number, turn.number + 1);
    ++turn.number;
    if (state.standby_rests.load()) {
        const base::Lock lock{state.mutex};
        state.standby_wake.notify_one();
    }
}

}  // namespace soft
