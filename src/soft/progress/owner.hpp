// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/owner: who serves a group, as one value, and what follows from it.
#pragma once

#include <cstdint>

namespace soft {

// How a group wakes the engine's thread: not at all; with its next event; with each new event.
enum class Arm : std::uint8_t { No, Once, Always };
// How soon the engine's tick looks at a group: not at all; every 50 ms; every 1 ms.
enum class Ticks : std::uint8_t { None, Slow, Fast };

enum class Owner : std::uint8_t {
    Engine,   // the engine's thread, or a poller that assists it
    Poller,   // a thread that polls in a loop
    Waiter,   // a thread in Group::wait(), which looks before it sleeps
    Sleeper,  // a thread in Group::wait(), while a thread may sleep on the group's descriptor
    // A thread outside (between begin_outside() and end_outside()), which
    Outside,  //   looked a while ago;
    Idle,     //   has not looked for long, and no event has come since;
    Asked,    //   should look, because an event came;
    Absent,   //   did not look then. The engine serves the group until it does.
};

enum class OwnerEvent : std::uint8_t {
    Polls,          // a thread looked that polls in a loop
    PollsOften,     // the engine has counted the looks of threads other than its own
    Leaves,         // the poller is about to sleep on a descriptor of its own, or waits for no completion
    Stops,          // the poller has not looked since the last tick
    BeginsWait,     // a thread enters Group::wait()
    FallsAsleep,    // it sleeps there
    WakesUp,        // it looks again
    EndsWait,       // it leaves Group::wait()
    BeginsOutside,  // a thread calls begin_outside()
    EndsOutside,    // it calls end_outside()
    Looked,         // a thread outside has looked since the engine last compared
    DidNotLook,     // none has for `absence`
    Woken,          // an event of the group has woken the engine
};

struct OwnerRule {
    Arm arm;
    Ticks ticks;
    bool relies;         // all sources rest, so that their descriptors tell of their work
    bool engine_serves;  // when it is woken
};

[[nodiscard]] constexpr OwnerRule rule_of(Owner owner) {
    switch (owner) {
        case Owner::Engine:
            return {.arm = Arm::Once, .ticks = Ticks::None, .relies = true, .engine_serves = true};
        case Owner::Poller:
            return {.arm = Arm::No, .ticks = Ticks::Fast, .relies = false, .engine_serves = false};
        case Owner::Waiter:
            return {.arm = Arm::No, .ticks = Ticks::None, .relies = false, .engine_serves = false};
        case Owner::Sleeper:
            return {.arm = Arm::No, .ticks = Ticks::None, .relies = true, .engine_serves = false};
        case Owner::Outside:
        case Owner::Asked:
            return {.arm = Arm::No, .ticks = Ticks::Slow, .relies = true, .engine_serves = false};
        case Owner::Idle:
            return {.arm = Arm::Always, .ticks = Ticks::None, .relies = true, .engine_serves = false};
        case Owner::Absent:
            return {.arm = Arm::Always, .ticks = Ticks::None, .relies = true, .engine_serves = true};
    }
    __builtin_unreachable();
}

// The owner, with the numbers of the threads that decide between owners. The caller locks.
class Ownership {
public:
    [[nodiscard]] constexpr Owner owner() const { return owner_; }
    constexpr void on(OwnerEvent event) {
        count(event);
        owner_ = waiting_ != 0   ? (asleep_ != 0 || outside_ != 0 ? Owner::Sleeper : Owner::Waiter)
                 : outside_ != 0 ? after_outside(event)
                                 : after_alone(event);
    }
    // Returns whether no thread waits for the group.
    [[nodiscard]] constexpr bool is_alone() const { return owner_ <= Owner::Poller; }
    // Returns whether the group is left to threads outside, present or not.
    [[nodiscard]] constexpr bool is_outside() const { return owner_ >= Owner::Outside; }

private:
    constexpr void count(OwnerEvent event) {
        switch (event) {
            case OwnerEvent::BeginsWait:
                ++waiting_;
                break;
            case OwnerEvent::EndsWait:
                --waiting_;
                break;
            case OwnerEvent::FallsAsleep:
                ++asleep_;
                break;
            case OwnerEvent::WakesUp:
                --asleep_;
                break;
            case OwnerEvent::BeginsOutside:
                ++outside_;
                break;
            case OwnerEvent::EndsOutside:
                --outside_;
                break;
            default:
                break;
        }
    }
    // While threads are outside, and none waits in the library.
    [[nodiscard]] constexpr Owner after_outside(OwnerEvent event) const {
        switch (event) {
            case OwnerEvent::Leaves:
                return owner_ == Owner::Absent ? Owner::Absent : Owner::Idle;
            case OwnerEvent::DidNotLook:
                return owner_ == Owner::Outside ? Owner::Idle
                       : owner_ == Owner::Asked ? Owner::Absent
                                                : owner_;
            case OwnerEvent::Woken:
                return owner_ == Owner::Absent ? Owner::Absent : Owner::Asked;
            case OwnerEvent::BeginsOutside:
            case OwnerEvent::EndsOutside:
            case OwnerEvent::EndsWait:
            case OwnerEvent::Looked:
                return Owner::Outside;
            default:
                return owner_;
        }
    }
    // While no thread waits. One that has just waited will likely be back, so it keeps the group as a poller
    // does.
    [[nodiscard]] constexpr Owner after_alone(OwnerEvent event) const {
        switch (event) {
            case OwnerEvent::Polls:
            case OwnerEvent::PollsOften:
            case OwnerEvent::EndsWait:
            case OwnerEvent::EndsOutside:
                return Owner::Poller;
            case OwnerEvent::Leaves:
            case OwnerEvent::Stops:
                return Owner::Engine;
            default:
                return owner_;
        }
    }

    Owner owner_ = Owner::Engine;
    unsigned waiting_ = 0;  // threads in Group::wait()
    unsigned asleep_ = 0;   // those of them that sleep
    unsigned outside_ = 0;  // threads between begin_outside() and end_outside()
};

}  // namespace soft
