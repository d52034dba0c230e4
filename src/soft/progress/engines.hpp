// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/engines: the engines of the process, and which groups each of them serves. Each group begins
// with the first engine. The first connection, or UD queue pair, of a completion queue moves the queue's
// group, which is still empty, to the engine that has the fewest such groups (Group::spread). From then on
// the group stays there, so two engines share nothing. The other groups, of event channels and of sockets
// that are drained, stay with the first engine.
//
// An engine has no thread and no descriptor before it has a group. So only a process with connections on two
// completion queues has a second one. An engine that cannot have its thread or its descriptors gets no group;
// the others have them all, and so one connection is never refused because another engine is missing.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "soft/progress/drain.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

// After a fork the child has engines of its own, without groups, because the inherited groups are its
// parent's.
class Engines {
public:
    static Engines &instance();

    [[nodiscard]] Engine &first() const { return *first_; }
    // Gives the group, which has no source, to the engine that has the fewest.
    void spread(Group &group) REQUIRES(group.mutex());

    // Calls Engine::watch() for each, also for those that are made later.
    void watch();
    [[nodiscard]] bool is_watched() const { return watched_.load(std::memory_order_relaxed); }

    [[nodiscard]] Drains &drains() { return drains_; }

    // Is called when the process ends. Waits, within limits::InForce::drain_timeout, for the sockets that are
    // being drained, and ends the library's threads.
    static void at_exit();

private:
    struct Place {
        std::unique_ptr<Engine> engine;
        bool fails = false;  // it gets no group any more
    };

    Engines();
    [[nodiscard]] Place &least() REQUIRES(mutex_);
    [[nodiscard]] Engine *at(std::size_t place) EXCLUDES(mutex_);
    void for_each(const auto &call) {
        for (std::size_t place = 0; Engine *const engine = at(place); ++place) {
            call(*engine);
        }
    }
    void end();
    static void before_fork();
    static void after_fork_in_child();
    static const base::ForkHook joins_before_forks;
    static const base::ForkHook renews_after_forks;

    base::Mutex mutex_;  // taken with a group's lock held, and an engine's is taken after it
    std::size_t most_ GUARDED_BY(mutex_);  // no more are made when one has failed, or the process ends
    std::vector<Place> places_ GUARDED_BY(mutex_);
    Engine *const first_;
    std::atomic<bool> watched_{false};  // changed with the lock
    Drains drains_;
    Engines *parents_ = nullptr;  // those of the process that forked this one
};

}  // namespace soft
