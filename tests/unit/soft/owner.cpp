// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/owner: who serves a group after which event.
#include "soft/progress/owner.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

// This comes last, because it asserts.
#include "../base/fixture.hpp"

namespace {

using soft::Arm;
using soft::Owner;
using soft::Ownership;
using Event = soft::OwnerEvent;
using soft::Ticks;

constexpr std::array owners{Owner::Engine,  Owner::Poller, Owner::Waiter, Owner::Sleeper,
                            Owner::Outside, Owner::Idle,   Owner::Asked,  Owner::Absent};

// Brings a new group to each owner.
Ownership at(Owner owner) {
    static const std::array<std::vector<Event>, owners.size()> paths{{
        {},
        {Event::Polls},
        {Event::BeginsWait},
        {Event::BeginsWait, Event::FallsAsleep},
        {Event::BeginsOutside},
        {Event::BeginsOutside, Event::DidNotLook},
        {Event::BeginsOutside, Event::Woken},
        {Event::BeginsOutside, Event::Woken, Event::DidNotLook},
    }};
    Ownership ownership;
    for (const Event event : paths.at(static_cast<std::size_t>(owner))) {
        ownership.on(event);
    }
    assert_int_equal(ownership.owner(), owner);
    return ownership;
}

struct Row {
    Event event;
    std::array<Owner, owners.size()> after;  // in the order of `owners`
};

void each_event_gives_each_owner_its_successor(void **) {
    using enum Owner;
    constexpr std::array rows{
        Row{Event::Polls, {Poller, Poller, Waiter, Sleeper, Outside, Idle, Asked, Absent}},
        Row{Event::PollsOften, {Poller, Poller, Waiter, Sleeper, Outside, Idle, Asked, Absent}},
        Row{Event::Leaves, {Engine, Engine, Waiter, Sleeper, Idle, Idle, Idle, Absent}},
        Row{Event::Stops, {Engine, Engine, Waiter, Sleeper, Outside, Idle, Asked, Absent}},
        Row{Event::BeginsWait, {Waiter, Waiter, Waiter, Sleeper, Sleeper, Sleeper, Sleeper, Sleeper}},
        Row{Event::BeginsOutside, {Outside, Outside, Sleeper, Sleeper, Outside, Outside, Outside, Outside}},
        Row{Event::Looked, {Engine, Poller, Waiter, Sleeper, Outside, Outside, Outside, Outside}},
        Row{Event::DidNotLook, {Engine, Poller, Waiter, Sleeper, Idle, Idle, Absent, Absent}},
        Row{Event::Woken, {Engine, Poller, Waiter, Sleeper, Asked, Asked, Asked, Absent}},
    };
    for (const Row &row : rows) {
        for (const Owner owner : owners) {
            Ownership ownership = at(owner);
            ownership.on(row.event);
            assert_int_equal(ownership.owner(), row.after.at(static_cast<std::size_t>(owner)));
        }
    }
}

void a_thread_that_has_waited_keeps_the_group(void **) {
    Ownership ownership = at(Owner::Sleeper);
    ownership.on(Event::WakesUp);
    assert_int_equal(ownership.owner(), Owner::Waiter);
    ownership.on(Event::EndsWait);
    assert_int_equal(ownership.owner(), Owner::Poller);
    for (const Owner owner : {Owner::Outside, Owner::Idle, Owner::Asked, Owner::Absent}) {
        Ownership outside = at(owner);
        outside.on(Event::EndsOutside);
        assert_int_equal(outside.owner(), Owner::Poller);
    }
}

// No group is left to nobody: the engine is woken for it, or its tick looks, or a thread waits for it in the
// library.
void somebody_serves_each_group(void **) {
    for (const Owner owner : owners) {
        const auto rule = soft::rule_of(owner);
        const bool waits = owner == Owner::Waiter || owner == Owner::Sleeper;
        assert_true(rule.arm != Arm::No || rule.ticks != Ticks::None || waits);
        assert_true(!rule.engine_serves || rule.arm != Arm::No);
        // Descriptors tell a thread that sleeps, and only a thread that looks at all sources can do without.
        assert_true(rule.relies || owner == Owner::Poller || owner == Owner::Waiter);
    }
}

enum class Place { Away, Looks, Sleeps, Outside };

// Threads come and go in a random order, and each owner fits where they are.
void the_owner_fits_the_threads(void **) {
    for (unsigned seed = 1; seed <= 1000; ++seed) {
        std::mt19937 random{seed};
        std::array<Place, 3> threads{};
        Ownership ownership;
        const auto go = [&](Place &thread, Event event, Place to) {
            ownership.on(event);
            thread = to;
        };
        for (int step = 0; step < 100; ++step) {
            constexpr std::array anytime{Event::Polls,  Event::PollsOften, Event::Leaves, Event::Stops,
                                         Event::Looked, Event::DidNotLook, Event::Woken};
            Place &thread = threads.at(random() % threads.size());
            if (random() % 2 == 0) {
                ownership.on(anytime.at(random() % anytime.size()));
            } else if (thread == Place::Away) {
                random() % 2 == 0 ? go(thread, Event::BeginsWait, Place::Looks)
                                  : go(thread, Event::BeginsOutside, Place::Outside);
            } else if (thread == Place::Looks) {
                random() % 2 == 0 ? go(thread, Event::FallsAsleep, Place::Sleeps)
                                  : go(thread, Event::EndsWait, Place::Away);
            } else if (thread == Place::Sleeps) {
                go(thread, Event::WakesUp, Place::Looks);
            } else {
                go(thread, Event::EndsOutside, Place::Away);
            }
            const auto any = [&](Place place) { return std::ranges::find(threads, place) != threads.end(); };
            const Owner owner = ownership.owner();
            const bool waits = any(Place::Looks) || any(Place::Sleeps);
            assert_int_equal(owner == Owner::Waiter || owner == Owner::Sleeper, waits);
            assert_int_equal(ownership.is_outside(), !waits && any(Place::Outside));
            assert_int_equal(ownership.is_alone(), !waits && !any(Place::Outside));
            // A thread that may sleep on the descriptors is told by them.
            assert_true(soft::rule_of(owner).relies || (!any(Place::Sleeps) && !any(Place::Outside)));
        }
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(each_event_gives_each_owner_its_successor),
        cmocka_unit_test(a_thread_that_has_waited_keeps_the_group),
        cmocka_unit_test(somebody_serves_each_group),
        cmocka_unit_test(the_owner_fits_the_threads),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
