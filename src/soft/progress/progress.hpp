// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/progress: whoever waits, works. A Source is a socket with something to do; a Group is the
// sources that one completion queue or one event channel serves; the Engine is the thread that serves the
// groups nobody else looks after.
//
// A group is served by one thread at a time, the holder of its lock, which never sleeps with it. Its
// sockets wake:
//   - a thread that sleeps in the library (Group::wait), or on the group's descriptor (outside_wait.hpp), or
//   polls in a loop has claimed the group: only that thread. One outside may have left it (group_wait.cpp);
//   - otherwise the engine: its thread, or a poller that has nothing to do (Engine::assist), so that a
//   program that spins leaves its processors to those who work.
// Hand-over loses nothing, because links at rest and sockets are level-triggered: whoever takes over sees
// what is still unread. A poller that has claimed the group looks at each of its sources itself, and does not
// let them rest. A poller that stops without a word is found by the engine's tick, at most two ticks later.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "soft/ground/allowance.hpp"
#include "soft/link/link.hpp"
#include "soft/progress/nudges.hpp"

namespace soft {

class Group;
class Source;
using Deadlines = std::set<std::pair<base::Clock::time_point, Source *>>;
using Watched = std::map<std::uint64_t, std::weak_ptr<Group>>;

// A socket that a group serves. progress() and expire() run with the group's lock held and do not block.
class Source {
public:
    Source();
    Source(const Source &) = delete;
    Source &operator=(const Source &) = delete;
    virtual ~Source() = default;

    // Does what can be done now; also called when there is nothing to do.
    virtual void progress() = 0;
    // The deadline that was set has passed.
    virtual void expire() {}
    // The group will call again when a descriptor of the source tells. Returns false if there is something to
    // do now.
    [[nodiscard]] virtual bool rest() { return true; }

private:
    friend class Group;
    static constexpr std::size_t nowhere = SIZE_MAX;
    std::size_t place_ = nowhere;           // in its group's sources_
    Deadlines::node_type unused_deadline_;  // when it has none: to set one needs no memory
    std::optional<base::Clock::time_point> deadline_;
    Nudge nudge_;
};

// Memory to receive into.
struct Buffer {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
};

// One that is inherited touches no socket and no epoll set: those are the parent's.
class Group : public base::Inheritable, public std::enable_shared_from_this<Group> {
public:
    // A group, known to the engine. EMFILE, ENFILE; ENOMEM, also where a thread or the kernel's watch cannot
    // be had (logged).
    [[nodiscard]] static base::Result<std::shared_ptr<Group>> create();
    ~Group();
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    // Guards what a source's progress() touches.
    [[nodiscard]] base::Mutex &mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }
    // A source is added once, with one socket; change() watches more of them.
    void add(Source &source, int fd, Interest interest) REQUIRES(mutex_);
    void remove(Source &source, int fd) REQUIRES(mutex_);
    void set_deadline(Source &source, base::Clock::time_point deadline) REQUIRES(mutex_);
    void clear_deadline(Source &source) REQUIRES(mutex_);

    // A source borrows a buffer for its turn and keeps it only when it holds a part of something: those that
    // are idle have none. Without bytes when there is no memory.
    [[nodiscard]] Buffer borrow_buffer(std::size_t size) REQUIRES(mutex_);
    void give_back(Buffer buffer) REQUIRES(mutex_);

    // Needs no lock: several callers' changes to one source must be ordered by the caller.
    void change(Source &source, int fd, Interest from, Interest to);

    // Allows nudge() from now on. EMFILE, ENFILE, ENOMEM.
    [[nodiscard]] base::Result<void> allow_nudges() EXCLUDES(mutex_);
    // The source has something to do of which no descriptor tells. Needs no lock; the source is in the group.
    void nudge(Source &source) { nudges_.give(source, source.nudge_); }
    // Lets a source rest that had its turn outside of the group's.
    void let_rest(Source &source) REQUIRES(mutex_);

    // A look without sleeping. `spinning`: the caller polls in a loop and need not be helped by the engine.
    void poll(bool spinning) EXCLUDES(mutex_);
    // The poller is about to sleep on a file descriptor of its own: the engine takes over at once.
    void hand_over() EXCLUDES(mutex_);

    // Serves the groups and sleeps in between until ready() is true, or a signal handler ran (false, errno
    // EINTR). event_fd is readable when another thread may have made ready() true. The groups, and the
    // descriptor, are this process's own.
    static bool wait(std::span<const std::shared_ptr<Group>> groups, int event_fd,
                     const std::function<bool()> &ready);

    // Between the two the caller serves the group, with poll(), whenever fd() is readable; the engine does
    // what the caller leaves undone.
    void begin_outside() EXCLUDES(mutex_);
    void end_outside() EXCLUDES(mutex_);
    [[nodiscard]] int fd() const { return epoll_.get(); }
    // The descriptor makes fd() readable too. It is no source's, and is closed when it is watched no longer.
    [[nodiscard]] base::Result<void> watch_also(int fd) const;

private:
    friend class Engine;
    explicit Group(base::Fd epoll);
    // How the engine is woken by a group.
    enum class Arm : std::uint8_t { No, Once, Always };
    // The engine takes the threads outside that wait for the group to serve it, now or when something comes;
    // to have been asked, because something came that they have not served yet; or to be absent.
    enum class Outside : std::uint8_t { Serve, Asked, Absent };

    // The looks at the sockets by others than the engine.
    struct Looks {
        std::uint64_t count = 0;
        std::uint64_t counted = 0;  // when it was last decided whether they are often
        base::Clock::time_point counted_since;
        bool are_often = false;
        std::uint64_t known = 0;
        base::Clock::time_point known_since;  // no look has been added since
    };

    void serve() REQUIRES(mutex_);
    [[nodiscard]] std::size_t take_nudged(std::span<Source *> to) REQUIRES(mutex_);
    void forget_nudge(Source &source) REQUIRES(mutex_);
    void begin_to_rely_or_cease() REQUIRES(mutex_);
    void begin_sleep() EXCLUDES(mutex_);
    void fall_asleep() EXCLUDES(mutex_);
    void wake_up() EXCLUDES(mutex_);
    void serve_for_sleeper() EXCLUDES(mutex_);
    void end_sleep() EXCLUDES(mutex_);
    void serve_for_engine() EXCLUDES(mutex_);
    [[nodiscard]] bool is_left_to_outside() REQUIRES(mutex_);
    [[nodiscard]] bool look_after_outside(base::Clock::time_point now) REQUIRES(mutex_);
    [[nodiscard]] bool has_ready_source() const REQUIRES(mutex_);
    // True while the engine has to come back; fast when a poller may have stopped.
    struct Watch {
        bool needed;
        bool fast;
    };
    Watch tick(base::Clock::time_point now) EXCLUDES(mutex_);
    [[nodiscard]] bool is_looked_at_often(base::Clock::time_point now) REQUIRES(mutex_);
    void claim() REQUIRES(mutex_);
    void watch(bool fast) REQUIRES(mutex_);
    void arm(Arm how) REQUIRES(mutex_);

    const base::Fd epoll_;
    base::Mutex mutex_;             // the progress() of all sources is called with it
    std::uint64_t engine_key_ = 0;  // set before another thread knows the group
    Watched::node_type unwatched_;  // while the engine does not watch it; guarded by the engine's lock
    std::vector<Source *> sources_ GUARDED_BY(mutex_);
    std::span<Source *> due_
        GUARDED_BY(mutex_);  // while it serves: those that it looks at; null in place of those removed since
    Deadlines timed_ GUARDED_BY(mutex_);
    Nudges nudges_;
    Buffer spare_ GUARDED_BY(mutex_);
    Arm armed_ GUARDED_BY(mutex_) = Arm::No;
    bool claimed_ GUARDED_BY(mutex_) = false;             // a poller serves it
    bool claimed_since_tick_ GUARDED_BY(mutex_) = false;  // or claimed again
    bool watched_ GUARDED_BY(mutex_) = false;             // the engine's tick looks at it
    bool fast_ GUARDED_BY(mutex_) = false;                // and soon: a poller may have stopped
    Outside outside_ GUARDED_BY(mutex_) = Outside::Serve;
    unsigned sleepers_ GUARDED_BY(mutex_) = 0;  // threads in wait()
    unsigned asleep_ GUARDED_BY(mutex_) = 0;    // of these, asleep
    // Somebody sleeps on the group's descriptor, or may: then its sources rest, but for those that are
    // nudged.
    bool relies_ GUARDED_BY(mutex_) = true;
    unsigned outsiders_ GUARDED_BY(mutex_) = 0;  // threads between begin_outside() and end_outside()
    Looks looks_ GUARDED_BY(mutex_);

    unsigned missed_ticks_ = 0;  // the engine's thread alone uses it
};

// The background thread: starts with the first group, ends with the last or with the process. After a fork
// the child has an engine of its own, with no groups: what it inherited is its parent's.
class Engine {
public:
    static Engine &instance();

    // A poller with nothing to do serves the groups that are the engine's, and its thread sleeps meanwhile.
    // `last` is when that poller assisted last: one that comes seldom is no help.
    void assist(std::atomic<base::Clock::time_point> &last);
    // And no longer: it is about to sleep.
    void end_assistance();

    // Takes over a link that is finished, until the peer has finished too, or has everything when
    // limits::drain_timeout is over, or limits::silence_timeout is over. Closes it when memory is out; one of
    // too many (limits::max_draining) is reset. `allowance` is what the kernel may keep for it.
    void drain(std::unique_ptr<Link> link, Origin origin, Allowance allowance = {});

    // When the process ends: waits, within limits::drain_timeout, for the sockets that are being drained, and
    // ends the library's threads.
    static void at_exit();

private:
    friend class Group;
    struct State;
    class Drain;

    Engine();
    bool enrol(Group &group);
    void withdraw(Group &group);
    void watch(Group &group, bool fast);
    [[nodiscard]] std::shared_ptr<Group> take_watched(std::uint64_t &key);
    void arm(Group &group, Group::Arm how);
    void begin_drain(const std::shared_ptr<Group> &group, std::unique_ptr<Drain> drain);
    void drained(const Drain *drain);
    void run();
    struct Found {
        bool work = false;   // groups that had something to do
        bool woken = false;  // for the thread: to look again what it should do
    };
    [[nodiscard]] Found serve_ready(int timeout_ms);
    [[nodiscard]] Found sleep_beside_assistant();
    int tick(base::Clock::time_point now);
    static void before_fork();
    static void after_fork_in_child();
    static const base::ForkHook joins_before_forks;
    static const base::ForkHook renews_after_forks;

    std::unique_ptr<State> state_;
    Engine *parents_ = nullptr;  // the one of the process that forked this one
};

}  // namespace soft
