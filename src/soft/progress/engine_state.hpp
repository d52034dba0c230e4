// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/engine_state: the state of the engine, for engine.cpp and drain.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/condition.hpp"
#include "base/origin.hpp"
#include "base/result.hpp"
#include "base/thread.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

struct Engine::State {
    static constexpr std::uint64_t wake_key = 0;  // the key of `wake`; groups have larger keys

    base::Mutex mutex;  // taken with a group's lock held, never the other way round
    base::Condition ended;
    // Opens the two descriptors, unless they are open. They stay.
    [[nodiscard]] base::Result<void> open() REQUIRES(mutex);
    base::Fd epoll;
    base::Fd wake;
    std::unordered_map<std::uint64_t, std::weak_ptr<Group>> groups GUARDED_BY(mutex);
    TickedGroups ticked_groups GUARDED_BY(mutex);
    // The keys of the groups whose sources hold bytes back, or did lately; there is room for all groups.
    std::vector<std::uint64_t> held GUARDED_BY(mutex);
    std::uint64_t next_key GUARDED_BY(mutex) = wake_key + 1;
    std::shared_ptr<Group> draining GUARDED_BY(mutex);  // the group of the sockets whose owners are gone
    std::size_t drains GUARDED_BY(mutex) = 0;  // those that have begun, also if they are not in the list yet
    std::vector<Drain *> all_drains GUARDED_BY(mutex);  // the oldest first
    base::Shares shares_of_drains GUARDED_BY(mutex);
    bool running GUARDED_BY(mutex) = false;
    bool ending GUARDED_BY(mutex) =
        false;  // the process ends, and so does the thread, even if there are groups
    base::EndedThread ended_thread GUARDED_BY(mutex);
    int tick_ms GUARDED_BY(mutex) = 0;  // how long the thread may sleep; -1: until an event

    // Relaxed is enough for all of these: only sockets are handed over, and the kernel orders those.
    std::atomic<bool> assisted{false};
    std::atomic<unsigned> assists{0};
    // For the thread alone: the number of assists that it knows, and since when.
    unsigned known_assists = 0;
    base::Clock::time_point assisted_at;
};

}  // namespace soft
