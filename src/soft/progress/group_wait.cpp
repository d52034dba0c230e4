// SPDX-License-Identifier: BSD-3-Clause
// soft/progress: threads that wait for a group, in the library or outside.
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/cancelling.hpp"
#include "persist/guard.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

namespace {

// A sleep costs tens of microseconds, so a thread looks for this long before it sleeps.
constexpr std::chrono::microseconds waiter_spins{20};

// When no thread outside has looked at a group for this long, the next event asks them. When none has looked
// for this long again, the engine serves the group.
constexpr std::chrono::milliseconds absence{50};

// Calls one function of each group now, and the other one at the end of the scope, also when the thread is
// cancelled.
class Between {
public:
    using Groups = std::span<const std::shared_ptr<Group>>;
    Between(Groups groups, void (Group::*begin)(), void (Group::*end)()) : groups_{groups}, end_{end} {
        std::ranges::for_each(groups_, [begin](const auto &group) { ((*group).*begin)(); });
    }
    ~Between() {
        const int error = errno;
        std::ranges::for_each(groups_, [this](const auto &group) { ((*group).*end_)(); });
        errno = error;
    }
    Between(const Between &) = delete;
    Between &operator=(const Between &) = delete;

private:
    Groups groups_;
    void (Group::*end_)();
};

}  // namespace

// ---- in the library ----

void Group::begin_wait() {
    const base::Lock lock{mutex_};
    on(OwnerEvent::BeginsWait);
}

void Group::fall_asleep() {
    const base::Lock lock{mutex_};
    on(OwnerEvent::FallsAsleep);
}

void Group::wake_up() {
    const base::Lock lock{mutex_};
    on(OwnerEvent::WakesUp);
}

void Group::end_wait() {
    const base::Lock lock{mutex_};
    keep(OwnerEvent::EndsWait);
}

// Does what the only source has left, in place of the sleep until another thread has done it. Returns false
// when there is nothing.
bool Group::do_left_job() {
    persist::Job *job = nullptr;
    {
        const base::Lock lock{mutex_};
        if (sources_.size() == 1 && sources_.front()->has_left() && persist::survives_faults()) {
            job = sources_.front()->take_left();
        }
    }
    if (job == nullptr) {
        return false;
    }
    end_wait();  // the engine takes over when storage is slow
    job->run(job->argument);
    begin_wait();
    return true;
}

bool Group::wait(std::span<const std::shared_ptr<Group>> groups, int event_fd,
                 const std::function<bool()> &ready) {
    thread_local std::vector<pollfd> fds;
    fds.assign(1, pollfd{.fd = event_fd, .events = POLLIN, .revents = 0});
    for (const auto &group : groups) {
        fds.push_back(pollfd{.fd = group->epoll_.get(), .events = POLLIN, .revents = 0});
    }
    const base::Cancelling disabled{PTHREAD_CANCEL_DISABLE};
    const Between waits{groups, &Group::begin_wait, &Group::end_wait};
    auto sleep_at = base::Clock::now() + waiter_spins;
    while (true) {
        for (const auto &group : groups) {
            group->poll(false);
        }
        if (ready() || (groups.size() == 1 && groups.front()->do_left_job() && ready())) {
            return true;
        }
        if (base::Clock::now() < sleep_at) {
            continue;
        }
        const Between sleeps{groups, &Group::fall_asleep, &Group::wake_up};
        const base::Cancelling as_before{disabled.before()};
        if (::poll(fds.data(), fds.size(), -1) < 0) {
            return false;
        }
    }
}

// ---- outside ----
//
// A program that waits on a descriptor may stop to do so without a call that says it: it called epoll_wait
// with a time-out of 0, say, and works now, or sleeps in another call. Its peers' bytes and ends would then
// stay unread. The program only counts its looks; the engine compares the counts (owner.hpp): when none has
// looked for `absence`, the owner goes from Outside to Idle, or from Asked to Absent.
//
// Completions that the engine makes keep the group's descriptor readable until the program takes them.
// Therefore events that are there wake the engine once, and then only new ones (Arm::Always).

void Group::begin_outside() {
    const base::Lock lock{mutex_};
    looks_.count.fetch_add(1, std::memory_order_relaxed);
    on(OwnerEvent::BeginsOutside);
    serve_held_here();
}

void Group::end_outside() {
    const base::Lock lock{mutex_};
    keep(OwnerEvent::EndsOutside);
}

void Group::learn_looks(base::Clock::time_point now) {
    const unsigned count = looks();
    if (std::exchange(looks_.known, count) != count) {
        on(OwnerEvent::Looked);
    }
    looks_.known_since = now;
}

// Is called by the engine's tick. Returns when the tick has to come again.
Ticks Group::look_after_outside(base::Clock::time_point now) {
    if (looks_.known != looks()) {
        learn_looks(now);
    } else if (ownership_.owner() == Owner::Absent) {
        serve();
        return has_ready_source() ? Ticks::Slow : Ticks::None;
    } else if (now - looks_.known_since >= absence) {
        on(OwnerEvent::DidNotLook);
    }
    return rule().ticks;
}

// A turn may not take all bytes that came, and no event wakes the engine for the rest.
bool Group::has_ready_source() const {
    if (nudges_.any()) {
        return true;
    }
    std::array<epoll_event, 3> events;  // two may be those of add_descriptor() and of nudges
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    const auto found = std::span{events}.first(static_cast<std::size_t>(std::max(count, 0)));
    return std::ranges::any_of(found, [](const epoll_event &event) { return event.data.ptr != nullptr; });
}

}  // namespace soft
