// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/engine_state: the state of an engine, for engine.cpp and standby.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/condition.hpp"
#include "base/result.hpp"
#include "base/thread.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

// A group that the engine knows. At most one thread at a time serves it for the engine, which has claimed it.
// A thread that finds it claimed leaves it, with a note, to the one that has.
struct Engine::Known {
    std::uint64_t key;
    std::weak_ptr<Group> group;
    bool claimed = false;
    bool reported = false;        // it is in State::reported
    bool reported_again = false;  // while it was claimed
    bool held_again = false;      // the same for State::held
    bool is_slow = false;         // a thread has lost its turn in it
};

struct Engine::State {
    static constexpr std::uint64_t wake_key = 0;  // the key of `wake`; groups have larger keys

    base::Mutex mutex;  // taken with a group's lock held, never the other way round
    base::Condition ended;
    // Opens the two descriptors, unless they are open. They stay. The failure is not logged.
    [[nodiscard]] base::Result<void> open() REQUIRES(mutex);
    base::Fd epoll;
    base::Fd wake;
    std::unordered_map<std::uint64_t, Known> groups GUARDED_BY(mutex);
    // The groups that the epoll set has reported, and that no thread has begun to serve, the last one next;
    // there is room for all. Those of a thread that waits for memory are here for the next engine.
    std::vector<Known *> reported GUARDED_BY(mutex);
    TickedGroups ticked_groups GUARDED_BY(mutex);
    // The keys of the groups whose sources hold bytes back, or did lately; there is room for all groups.
    std::vector<std::uint64_t> held GUARDED_BY(mutex);
    std::uint64_t next_key GUARDED_BY(mutex) = wake_key + 1;
    // The engine's threads without those that another one has taken over from.
    unsigned ready GUARDED_BY(mutex) = 0;
    bool ending GUARDED_BY(mutex) =
        false;  // the process ends, and so does the thread, even if there are groups
    base::EndedThread ended_thread GUARDED_BY(mutex);
    int tick_ms GUARDED_BY(mutex) = 0;  // how long the thread may sleep; -1: until an event

    // Relaxed is enough for all of these: only sockets are handed over, and the kernel orders those.
    std::atomic<bool> assisted{false};
    std::atomic<unsigned> assists{0};

    [[nodiscard]] bool is_over() const REQUIRES(mutex) { return groups.empty() || ending; }
    // Forgets the group with this descriptor and key.
    void forget(int group, std::uint64_t key) REQUIRES(mutex);
    // Notes that the epoll set has reported the group.
    void report(Known &known) REQUIRES(mutex);
    // Returns the next one of them, which has been reported first. Those in which a thread has lost its turn
    // come after all others: each of them may take a turn again, and the others wait for one.
    [[nodiscard]] Known &next_reported() REQUIRES(mutex);
    // Gives up a claim. What came meanwhile is left to the engine.
    void release(Known &known) REQUIRES(mutex);
    // Has the engine tick so often at least.
    void tick_every(int ms) REQUIRES(mutex);

    // A thread of the engine may have to wait for memory, so there is a standby. It stays so.
    std::atomic<bool> watched{false};
    // Is odd while the engine sleeps, and another number after each of its turns. The engine changes it, and
    // who becomes the engine.
    std::atomic<std::uint64_t> turn{0};
    base::Condition standby_wake;
    std::atomic<bool> standby_rests{
        false};  // the standby sleeps until the engine wakes; changed with the lock
};

// The engine's turns, as long as its thread is the engine.
struct Engine::Turn {
    pid_t thread;
    std::uint64_t number;  // State::turn
    bool lost = false;     // another thread has taken over
    // The number of assists that it knows, and since when.
    unsigned known_assists = 0;
    base::Clock::time_point
        assisted_at{};  // NOLINT(readability-redundant-member-init): g++ wants one where it is left out
};

}  // namespace soft
