// SPDX-License-Identifier: BSD-3-Clause
#include "soft/progress/engines.hpp"

#include <sys/epoll.h>

#include <new>
#include <utility>

#include "base/at_exit.hpp"
#include "base/error_text.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "base/thread.hpp"
#include "persist/worker.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

// They are never destroyed, because threads of the program may use them while the process ends.
std::atomic<Engines *> current{nullptr};
// Those of this process's ancestors, kept here so that a leak checker finds them.
Engines *inherited = nullptr;

}  // namespace

Engines::Engines()
    : most_{engines_of_environment().value_or(1)},
      first_{places_.emplace_back(Place{.engine = std::make_unique<Engine>(true)}).engine.get()} {}

Engines &Engines::instance() {
    // Acquire makes everything visible that another thread made.
    if (Engines *const engines = current.load(std::memory_order_acquire)) {
        return *engines;
    }
    std::unique_ptr<Engines> made{new Engines};
    Engines *known = nullptr;
    if (current.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
        return *made.release();
    }
    return *known;  // another thread was faster
}

// The child does not touch the parent's engines, because threads that do not exist here may hold their locks.
void Engines::after_fork_in_child() {
    if (Engines *const parents = current.exchange(nullptr, std::memory_order_acq_rel)) {
        parents->parents_ = std::exchange(inherited, parents);
    }
}

void Engines::before_fork() {
    if (Engines *const engines = current.load(std::memory_order_acquire)) {
        engines->for_each([](Engine &engine) { engine.join_ended(); });
    }
}

const base::ForkHook Engines::joins_before_forks{base::ForkLevel::EndedThreads, {.before = before_fork}};
const base::ForkHook Engines::renews_after_forks{base::ForkLevel::SoftProgress,
                                                 {.after_in_child = after_fork_in_child}};

Engine *Engines::at(std::size_t place) {
    const base::Lock lock{mutex_};
    return place < places_.size() ? places_[place].engine.get() : nullptr;
}

// Returns the engine that has the fewest groups of those that are spread; a new one when each has some.
Engines::Place &Engines::least() {
    Place *least = &places_.front();
    for (Place &place : places_) {
        if (!place.fails && place.engine->spread_groups() < least->engine->spread_groups()) {
            least = &place;
        }
    }
    if (least->engine->spread_groups() != 0 && places_.size() < most_) {
        least = &places_.emplace_back(Place{.engine = std::make_unique<Engine>(false)});
        if (is_watched()) {
            least->engine->watch();
        }
    }
    return *least;
}

void Engines::spread(Group &group) {
    group.mutex().assert_held();
    const base::Lock lock{mutex_};
    try {
        for (Place *place = &least(); place->engine.get() != first_; place = &least()) {
            auto enrolled = place->engine->enrol(group);
            if (!enrolled) {
                place->fails = true;
                most_ = places_.size();
                continue;
            }
            if (first_->let_go(group)) {
                group.change_engine(*place->engine, std::move(*enrolled));
            } else {
                place->engine->withdraw(group, enrolled->key);
            }
            break;
        }
    } catch (const std::bad_alloc &) {
        most_ = places_.size();  // the first one keeps the group
    }
    group.count_as_spread();
}

// ---- groups ----

base::Result<std::shared_ptr<Group>> Group::create() {
    base::Fd epoll{epoll_create1(EPOLL_CLOEXEC)};
    if (!epoll) {
        const auto failed = base::last_failure();
        BASE_LOG(Error, "no file descriptor for a completion queue or event channel: %s",
                 base::error_text(failed.error().number));
        return failed;
    }
    std::shared_ptr<Group> group{new Group{std::move(epoll)}};
    Engine &engine = Engines::instance().first();
    auto enrolled = engine.enrol(*group);
    if (!enrolled) {
        return base::Failure{enrolled.error()};
    }
    const base::Lock lock{group->mutex_};
    group->enrolment_ = std::move(*enrolled);
    group->engine_.store(&engine, std::memory_order_release);
    group->arm(Arm::Once);
    return group;
}

void Group::spread() {
    if (!is_spread_ && !inherited()) {
        Engines::instance().spread(*this);
    }
}

void Group::count_as_spread() {
    is_spread_ = true;
    engine().spread_groups_.fetch_add(1, std::memory_order_relaxed);
}

// The new engine's set does not watch for an event yet. An event that the engine before had found is still
// there, and so is one that comes meanwhile.
void Group::change_engine(Engine &engine, Enrolment enrolment) {
    enrolment_ = std::move(enrolment);
    engine_.store(&engine, std::memory_order_release);
    arm(std::exchange(armed_, Arm::No));
    want_ticks(std::exchange(ticks_, Ticks::None));
}

// ---- for all of them ----

void Engines::watch() {
    {
        const base::Lock lock{mutex_};
        base::set_shared(watched_, true);
    }
    for_each([](Engine &engine) { engine.watch(); });
}

// A process that ends right after its last disconnect waits, within a limit, until the peers have read the
// completed bytes. Then the threads end, even if the program has left groups behind. That has a limit too,
// because exit() may have been called with a lock held for which they wait.
void Engines::at_exit() {
    if (base::on_own_thread) {
        return;  // the program's log function has ended the process
    }
    if (Engines *const engines = current.load(std::memory_order_acquire)) {
        engines->drains_.wait(base::Clock::now() + limits::in_force().drain_timeout);
        engines->end();
    }
    persist::Worker::end_all();
}

void Engines::end() {
    {
        const base::Lock lock{mutex_};
        most_ = places_.size();
    }
    for_each([](Engine &engine) { engine.begin_end(); });
    const auto until = base::Clock::now() + limits::thread_timeout;
    for_each([until](Engine &engine) { engine.await_end(until); });
}

namespace {

// The library is never unloaded (-z nodelete), so this runs when the process ends.
const base::AtExit<Engines::at_exit> at_exit;

}  // namespace

}  // namespace soft
