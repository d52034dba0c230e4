// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/progress: the thread that waits, works. A Source (source.hpp) has work when its socket is
// ready or its deadline has passed; a Group is the sources that one completion queue or one event channel
// serves; an Engine is a thread that serves the groups which no other thread serves. A process has one, or
// some on which the groups are spread (engines.hpp).
//
// One thread at a time serves a group: the holder of its lock, which never sleeps with it, except for a page
// of registered memory (standby.cpp). Whom the group's sockets wake is decided by the group's Owner
// (owner.hpp): a thread that polls, waits in the library, or waits on the group's descriptor; otherwise the
// engine, which is its thread, or a poller that has nothing to do (Engine::assist), so that a program that
// spins leaves its processors to the threads that work.
//
// A change of owner loses no event, because links at rest and sockets are level-triggered: the next owner
// sees the bytes that are still unread. A poller looks at each source itself, and does not let them rest. The
// engine's tick notices a poller that has stopped, at most two ticks later.
//
// A source that holds bytes back (Group::tell_held) gets a turn after that, whoever owns the group. First, it
// is among the nudges before engine_told_ is set. Second, a thread that takes it from there gives it a turn
// with the group's lock, and the source's own lock orders that turn after the post. Third, while engine_told_
// is true, the engine has the group in its list; it takes the group out, sets engine_told_ to false by an
// exchange, and then looks at the nudges once more. Either that exchange reads what a caller of tell_held()
// has stored, and the engine finds its source, or that caller finds false and tells the engine anew. The
// engine waits for the group's lock there, so a poll that finds the lock taken may leave without a look.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/origin.hpp"
#include "base/result.hpp"
#include "base/shared_value.hpp"
#include "base/watched_mutex.hpp"
#include "soft/progress/lively.hpp"
#include "soft/progress/nudges.hpp"
#include "soft/progress/owner.hpp"
#include "soft/progress/source.hpp"

namespace soft {

class Group;
// The groups that the engine's tick looks at, by their keys.
using TickedGroups = std::map<std::uint64_t, std::weak_ptr<Group>>;

// An engine knows a group by this.
struct Enrolment {
    std::uint64_t key = 0;
    // The group's entry in the engine's map while it wants no ticks; guarded by the engine's lock.
    TickedGroups::node_type tick_node;
};

class Engine;

// Memory for received bytes.
struct Buffer {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
};

// An inherited group touches no socket and no epoll set, because those are the parent's.
class Group : public base::Inheritable, public std::enable_shared_from_this<Group> {
public:
    // Makes a group that the engine knows. Fails with EMFILE, ENFILE or ENOMEM, also when there is no thread
    // or no kernel watch (logged).
    [[nodiscard]] static base::Result<std::shared_ptr<Group>> create();
    ~Group();
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    // Returns the lock with which a source's progress() is called.
    [[nodiscard]] base::WatchedMutex &mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }
    // Lets the engine serve the group that has the fewest of those for which this was called. Is called
    // before each source of a connection is added; the first call decides.
    void spread() REQUIRES(mutex_);
    // A source is added once, with one socket; change() watches more of them.
    void add(Source &source, int fd, Interest interest) REQUIRES(mutex_);
    void remove(Source &source, int fd) REQUIRES(mutex_);
    void set_deadline(Source &source, base::Clock::time_point deadline) REQUIRES(mutex_);
    void clear_deadline(Source &source) REQUIRES(mutex_);

    // Lends a source a buffer for its turn. The source keeps it only while it holds a part of a segment, so
    // idle sources have none. The buffer has no bytes when there is no memory.
    [[nodiscard]] Buffer borrow_buffer(std::size_t size) REQUIRES(mutex_);
    void give_back(Buffer buffer) REQUIRES(mutex_);

    // Takes a source's turn for a step that takes as long as many others, such as an operation with a private
    // key. Returns false when it may not take one now. Each origin may take one in a turn, and all of them
    // few, so that nobody waits for all such steps of others. The source has a descriptor that gives it
    // another turn.
    [[nodiscard]] bool take_long_turn(base::Origin origin) REQUIRES(mutex_);

    // Needs no lock. Callers must order their changes to one source.
    void change(Source &source, int fd, Interest from, Interest to);

    // Allows nudge() from now on. Fails with EMFILE, ENFILE or ENOMEM.
    [[nodiscard]] base::Result<void> allow_nudges() EXCLUDES(mutex_);
    // Tells the group that a source has work that no descriptor reports. Needs no lock; the source is in the
    // group.
    void nudge(Source &source) { nudges_.give(source); }
    // Returns how often threads have looked for completions since the beginning; it wraps around. Needs no
    // lock.
    [[nodiscard]] unsigned looks() const { return looks_.count.load(std::memory_order_relaxed); }
    // Tells the group and the engine that a source holds bytes back. The next look gives it a turn, or the
    // engine, whichever comes first. Returns false when the process ends and the engine gives no more turns.
    // Needs no lock; the source is in the group.
    [[nodiscard]] bool tell_held(Source &source);
    // Lets a source rest that had a turn, unless the group goes on to look at it.
    void let_rest(Source &source) REQUIRES(mutex_);

    // Looks once without sleeping. With `spinning` the caller polls in a loop and needs no help by the
    // engine.
    void poll(bool spinning) EXCLUDES(mutex_);
    // Has the engine take over at once, because the poller is about to sleep on a file descriptor of its own.
    void hand_over() EXCLUDES(mutex_);

    // Tells the group that a source may have stopped to be awaited (Source::is_awaited). Needs no lock.
    void may_be_left() { base::set_shared(may_be_left_, true); }
    // Has the engine take over at once, if a source has said so, and the poller, who has taken all
    // completions, can wait for no other one. Returns whether that is so.
    [[nodiscard]] bool leave_unawaited() EXCLUDES(mutex_) {
        return may_be_left_.load(std::memory_order_relaxed) && leave_if_unawaited();
    }

    // Serves the groups and sleeps in between until ready() is true, or a signal handler ran (false, errno
    // EINTR). event_fd is readable when another thread may have made ready() true. The groups, and the
    // descriptor, are this process's own. The thread can be cancelled while it sleeps.
    static bool wait(std::span<const std::shared_ptr<Group>> groups, int event_fd,
                     const std::function<bool()> &ready);

    // Between these two the caller serves the group, with poll(), whenever fd() is readable; the engine does
    // the work that the caller leaves.
    void begin_outside() EXCLUDES(mutex_);
    void end_outside() EXCLUDES(mutex_);
    [[nodiscard]] int fd() const { return epoll_.get(); }
    // Makes another descriptor, which belongs to no source, make fd() readable too. It is watched until it is
    // closed.
    [[nodiscard]] base::Result<void> add_descriptor(int fd) const;

    // The engine that serves the group when no other thread does. It lasts as long as the process.
    [[nodiscard]] Engine &engine() const { return *engine_.load(std::memory_order_acquire); }

private:
    friend class Engine;
    friend class Engines;
    explicit Group(base::Fd epoll);
    // The looks at the sockets by threads other than the engine.
    struct Looks {
        std::atomic<unsigned> count{0};  // changed with the lock
        unsigned counted = 0;            // the count when it was last decided whether they are often
        base::Clock::time_point counted_since;
        bool are_often = false;
        unsigned known = 0;
        base::Clock::time_point known_since;  // no look has been added since
    };

    void serve() REQUIRES(mutex_);
    void serve_once() REQUIRES(mutex_);
    [[nodiscard]] std::size_t take_reported(std::span<Source *> to) REQUIRES(mutex_);
    void put_to_rest(Source &source) REQUIRES(mutex_);
    // The only place where the owner changes.
    void on(OwnerEvent event) REQUIRES(mutex_);
    // The same for an event of a thread that keeps the group until the next tick.
    void keep(OwnerEvent event) REQUIRES(mutex_);
    [[nodiscard]] OwnerRule rule() const REQUIRES(mutex_) { return rule_of(ownership_.owner()); }
    void begin_to_rely() REQUIRES(mutex_);
    // Returns the sources at which a poller looks itself.
    [[nodiscard]] std::span<Source *const> looked_at() const REQUIRES(mutex_);
    [[nodiscard]] bool leave_if_unawaited() EXCLUDES(mutex_);
    void leave_to_engine() REQUIRES(mutex_);
    void begin_wait() EXCLUDES(mutex_);
    void fall_asleep() EXCLUDES(mutex_);
    void wake_up() EXCLUDES(mutex_);
    [[nodiscard]] bool do_left_job() EXCLUDES(mutex_);
    void end_wait() EXCLUDES(mutex_);
    void serve_for_engine() EXCLUDES(mutex_);
    // For the engine: returns whether a source has begun to hold bytes back since the last such call.
    [[nodiscard]] bool holds_anew();
    void serve_held(bool last_time) EXCLUDES(mutex_);
    void serve_held_here() REQUIRES(mutex_);
    void learn_looks(base::Clock::time_point now) REQUIRES(mutex_);
    [[nodiscard]] Ticks look_after_outside(base::Clock::time_point now) REQUIRES(mutex_);
    [[nodiscard]] bool has_ready_source() const REQUIRES(mutex_);
    // Returns when the engine's tick looks at the group again; soon, when a poller may have stopped.
    Ticks tick(base::Clock::time_point now) EXCLUDES(mutex_);
    [[nodiscard]] bool is_looked_at_often(base::Clock::time_point now) REQUIRES(mutex_);
    void want_ticks(Ticks how) REQUIRES(mutex_);
    void arm(Arm how) REQUIRES(mutex_);
    // For Engines::spread().
    void change_engine(Engine &engine, Enrolment enrolment) REQUIRES(mutex_);
    void count_as_spread() REQUIRES(mutex_);

    const base::Fd epoll_;
    base::WatchedMutex mutex_;  // held during the progress() of all sources
    // These change in spread() too, before the group has a source.
    std::atomic<Engine *> engine_{nullptr};
    Enrolment enrolment_;
    std::vector<Source *> sources_ GUARDED_BY(mutex_);
    Lively lively_ GUARDED_BY(mutex_);
    std::span<Source *> due_ GUARDED_BY(
        mutex_);  // during a turn: the sources that it looks at; null in place of those removed since
    static constexpr std::size_t most_long = 4;
    std::array<base::Origin, most_long> took_long_ GUARDED_BY(mutex_){};  // in this turn
    std::size_t times_long_ GUARDED_BY(mutex_) = 0;
    Deadlines timed_ GUARDED_BY(mutex_);
    Nudges nudges_;
    Buffer spare_ GUARDED_BY(mutex_);
    Ownership ownership_ GUARDED_BY(mutex_);
    bool is_spread_ GUARDED_BY(mutex_) = false;     // the engine counts it among its spread groups
    bool kept_ GUARDED_BY(mutex_) = false;          // since the last tick; see keep()
    Arm armed_ GUARDED_BY(mutex_) = Arm::No;        // what the engine's epoll set has
    Ticks ticks_ GUARDED_BY(mutex_) = Ticks::None;  // what the engine has
    Looks looks_;                                   // guarded by mutex_, but for its count

    std::atomic<bool> may_be_left_{false};
    std::atomic<bool> engine_told_{false};  // the engine will call serve_held()
    std::atomic<unsigned> times_held_{0};   // calls of tell_held()
    unsigned times_known_ = 0;              // of these, to the engine's thread
    unsigned missed_ticks_ = 0;             // only the engine's thread uses it
};

// A background thread, and its standby. They start with the engine's first group, and end with its last or
// with the process. engines.hpp says which groups an engine has.
class Engine {
public:
    // The first engine of a process logs an error when it cannot have a group, the others information.
    explicit Engine(bool is_first);
    ~Engine();
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    // The number, gettid(2), of a thread of the engine that lasts as long as it has groups; 0 while there is
    // none. A peer on this host finds by it whether the process is still there.
    [[nodiscard]] const std::atomic<pid_t> &thread() const { return lasting_; }

    // Has an idle poller serve the engine's groups, while the engine's thread sleeps. `last` is the time of
    // this poller's last assist, because a poller that comes seldom is no help.
    void assist(std::atomic<base::Clock::time_point> &last);
    // Ends that, because the poller is about to sleep.
    void end_assistance();

    // Has a second thread stand by from now on, because memory is registered for which the engine may have to
    // wait in a group.
    void watch();

private:
    friend class Group;
    friend class Engines;
    struct State;

    [[nodiscard]] base::LogLevel level_of_failure() const {
        return is_first_ ? base::LogLevel::Error : base::LogLevel::Info;
    }
    [[nodiscard]] unsigned spread_groups() const { return spread_groups_.load(std::memory_order_relaxed); }
    [[nodiscard]] base::Result<Enrolment> enrol(Group &group);
    void withdraw(const Group &group, std::uint64_t key);
    [[nodiscard]] bool let_go(const Group &group);
    void begin_ticks(Group &group, Ticks how);
    [[nodiscard]] std::shared_ptr<Group> take_ticked(std::uint64_t &key);
    void arm(Group &group, Arm how);
    [[nodiscard]] bool tell_held(Group &group);
    struct Known;
    struct Turn;
    template <typename Serve>
    void with_claim(Known &known, Turn *turn, const Serve &serve);
    [[nodiscard]] bool look_at_held(Turn &turn);
    void nap();
    void run();
    void serve(Turn &turn);
    struct Served {
        bool work = false;   // groups that had something to do
        bool woken = false;  // the thread checks again what it should do
        bool more = false;   // groups that are reported, and have not been served
        bool over = false;   // there is no group, or the process ends
    };
    [[nodiscard]] Served serve_ready(int timeout_ms, Turn *turn);
    [[nodiscard]] Served sleep_beside_assistant(int timeout_ms, Turn &turn);
    int tick(base::Clock::time_point now, Turn &turn);
    void begin_end();
    void await_end(base::Clock::time_point until);
    void join_ended();
    // standby.cpp
    [[nodiscard]] unsigned threads_needed() const;
    void start_threads();
    [[nodiscard]] bool becomes_engine();
    void stand_by();
    void rest(std::uint64_t turn);
    [[nodiscard]] bool take_over(std::uint64_t turn);
    void comes_back();
    [[nodiscard]] bool is_surplus() const;
    [[nodiscard]] bool has_to_stand_by() const;
    void end_turn(Turn &turn);
    void begin_sleep(Turn &turn);
    void end_sleep(Turn &turn);

    const bool is_first_;
    std::unique_ptr<State> state_;
    std::atomic<unsigned> spread_groups_{0};  // those of its groups that Group::spread() was called for
    std::atomic<pid_t> thread_{0};            // the engine's thread, gettid(2); 0 while there is none
    std::atomic<pid_t> lasting_{0};           // the first one of these
};

}  // namespace soft
