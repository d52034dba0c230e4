// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/drain: keeps links whose owners are gone until their peers have everything.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "base/condition.hpp"
#include "base/mutex.hpp"
#include "base/origin.hpp"
#include "soft/ground/unread_share.hpp"
#include "soft/link/link.hpp"

namespace soft {

class Group;

// All of the process. They have one group, of the first engine.
class Drains {
public:
    // Takes over a finished link, until the peer has finished too, or has everything after
    // limits::InForce::drain_timeout, or until limits::silence_timeout is over. Closes it when there is no
    // memory; one link is reset when there are too many (limits::InForce::max_draining). `unread_share` is
    // how many bytes the kernel may keep for it.
    void add(std::unique_ptr<Link> link, base::Origin origin, UnreadShare unread_share = {});
    // Waits until there is none, or until then.
    void wait(base::Clock::time_point until);

private:
    class Drain;

    void begin(const std::shared_ptr<Group> &group, std::unique_ptr<Drain> drain);
    void ended(const Drain *drain);

    base::Mutex mutex_;  // taken with the group's lock held, never the other way round
    base::Condition none_left_;
    std::shared_ptr<Group> group_ GUARDED_BY(mutex_);
    std::size_t count_ GUARDED_BY(mutex_) = 0;  // those that have begun, also if they are not in `all_` yet
    std::vector<Drain *> all_ GUARDED_BY(mutex_);  // the oldest first
    base::Shares shares_ GUARDED_BY(mutex_);
};

}  // namespace soft
