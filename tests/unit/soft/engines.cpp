// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/engines: groups that are spread have different engines, of which one that is busy stops no
// other. An engine has threads only while it has groups, and the process goes on without those that cannot
// start. The tests have three engines, and each begins without groups.
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../child.hpp"
#include "../../forks.h"
#include "../base/threadless.hpp"
#include "base/event.hpp"
#include "soft/ground/environment.hpp"
#include "soft/progress/engines.hpp"

// This comes last, because it asserts.
#include "listener.hpp"

SET_TSAN_OPTIONS("die_after_fork=0")

namespace {

using test::Clock;
using test::Listener;
using test::patience;

constexpr std::size_t engines = 3;

template <typename Condition>
void until(Condition condition) {
    const auto end = Clock::now() + patience;
    while (!condition()) {
        assert_true(Clock::now() < end);
        std::this_thread::yield();
    }
}

// Returns the number of threads that the engines have. One that has been told to end may still be there.
std::size_t threads() {
    std::size_t count = 0;
    for (const auto &task : std::filesystem::directory_iterator{"/proc/self/task"}) {
        std::ifstream file{task.path() / "comm"};
        std::string name;
        std::getline(file, name);
        count += name == "softrdma" ? 1 : 0;
    }
    return count;
}

void hear(Listener &listener, unsigned bytes = 1) {
    for (unsigned i = 0; i < bytes; ++i) {
        speak_and_wait(listener, [] { std::this_thread::yield(); });
    }
}

// Has no work but what the group or the engine is told of, unless it speaks. Its group is spread.
class Counter final : public soft::Source {
public:
    explicit Counter(std::shared_ptr<soft::Group> group = soft::Group::create().value())
        : group_{std::move(group)} {
        const base::Lock lock{group_->mutex()};
        group_->spread();
        group_->add(*this, event_.get(), {.readable = true});
    }
    Counter(const Counter &) = delete;
    Counter &operator=(const Counter &) = delete;
    ~Counter() override {
        const base::Lock lock{group_->mutex()};
        group_->remove(*this, event_.get());
    }
    void progress() override {
        heard += base::take_event(event_.get()) ? 1 : 0;
        ++turns;
    }
    void expire() override { ++expired; }
    void speak() { base::raise_event(event_.get()); }
    [[nodiscard]] soft::Group &group() { return *group_; }

    std::atomic<unsigned> heard{0};
    std::atomic<unsigned> turns{0};
    std::atomic<unsigned> expired{0};

private:
    base::Fd event_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    std::shared_ptr<soft::Group> group_;
};

// Makes groups that are spread.
void make(auto &listeners, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        listeners.emplace_back(true);
    }
}

// Returns how many of them each engine has. A thread of it has read from each.
std::map<pid_t, std::size_t> by_engine(std::deque<Listener> &listeners) {
    std::map<pid_t, std::size_t> counts;
    for (Listener &listener : listeners) {
        hear(listener);
        ++counts[listener.engine];
    }
    return counts;
}

void they_have_equally_many_groups(void **) {
    std::deque<Listener> listeners;
    make(listeners, 4 * engines);
    const auto counts = by_engine(listeners);
    assert_int_equal(counts.size(), engines);
    assert_true(std::ranges::all_of(counts, [](const auto &one) { return one.second == 4; }));
    until([] { return threads() == engines; });
}

// Those that remain count, and not those that were made.
void a_new_group_goes_where_others_have_gone(void **) {
    std::list<Listener> listeners;
    make(listeners, 2 * engines);
    const soft::Engine *const one = &listeners.back().group().engine();
    listeners.remove_if([one](Listener &listener) { return &listener.group().engine() == one; });
    assert_int_equal(listeners.size(), 2 * (engines - 1));
    std::deque<Listener> later;
    make(later, 2);
    for (Listener &listener : later) {
        hear(listener);
        assert_ptr_equal(&listener.group().engine(), one);
    }
}

void one_has_a_thread_only_while_it_has_groups(void **) {
    until([] { return threads() == 0; });  // of the test before this one
    {
        std::deque<Listener> others(3);
        Listener spread{true};
        hear(spread);
        for (Listener &listener : others) {
            hear(listener);
            assert_int_equal(listener.engine, spread.engine);
        }
        until([] { return threads() == 1; });
        {
            Listener second{true};
            hear(second);
            assert_int_not_equal(second.engine, spread.engine);
            until([] { return threads() == 2; });
        }
        until([] { return threads() == 1; });
        Listener again{true};
        hear(again);
        assert_int_not_equal(again.engine, spread.engine);
    }
    until([] { return threads() == 0; });
}

// The engine of the first waits for the lock of its group.
void one_that_is_busy_stops_no_other(void **) {
    std::deque<Listener> listeners;
    make(listeners, engines);
    Listener &busy = listeners.front();
    {
        const base::Lock lock{busy.group().mutex()};
        busy.speak();
        for (auto other = listeners.begin() + 1; other != listeners.end(); ++other) {
            hear(*other, 100);
        }
        assert_int_equal(busy.read_by_all(), 0);
    }
    until([&] { return busy.read_by_engine == 1; });
}

// The first engine watches a group that is not spread yet, and may be told of it: a thread polls, or waits
// outside, and has gone when the first connection comes.
void a_group_that_changes_its_engine_loses_nothing(void **) {
    constexpr unsigned rounds = 50;
    const Listener first{true};
    unsigned stayed = 0;  // because the first engine's tick was just in the group
    for (unsigned round = 0; round < rounds; ++round) {
        const auto group = soft::Group::create().value();
        group->poll(true);
        if (round % 2 != 0) {
            group->begin_outside();
        }
        Counter counter{group};
        stayed += &group->engine() == &soft::Engines::instance().first() ? 1 : 0;
        counter.speak();
        if (round % 2 != 0) {
            group->end_outside();
        }
        until([&] { return counter.heard == 1; });
    }
    assert_in_range(stayed, 0, rounds / 2);
}

void what_is_held_has_its_turn(void **) {
    std::deque<Counter> counters(engines);
    for (Counter &counter : counters) {
        assert_int_equal(counter.turns, 0);
        assert_true(counter.group().tell_held(counter));
        until([&] { return counter.turns != 0; });
    }
}

void deadlines_pass(void **) {
    std::deque<Counter> counters(engines);
    for (Counter &counter : counters) {
        const base::Lock lock{counter.group().mutex()};
        counter.group().set_deadline(counter, Clock::now());
    }
    for (const Counter &counter : counters) {
        until([&] { return counter.expired == 1; });
    }
}

// The thread of an engine that a poller assists sleeps; those of the others do not.
void a_poller_assists_the_engine_of_its_group(void **) {
    std::deque<Listener> listeners;
    make(listeners, 2);
    std::atomic<Clock::time_point> last{};
    const auto end = Clock::now() + patience;
    while (listeners[1].read_by_tester == 0) {
        assert_true(Clock::now() < end);
        speak_and_wait(listeners[1], [&] { listeners[1].group().engine().assist(last); });
        speak_and_wait(listeners[0], [&] { listeners[1].group().engine().assist(last); });
    }
    assert_int_equal(listeners[0].read_by_tester, 0);
}

void without_a_thread_the_others_have_the_groups(void **) {
    until([] { return threads() == 0; });  // none of the tests before is left
    std::deque<Listener> listeners;
    make(listeners, 1);
    test::made_without_threads([&] {
        make(listeners, 3);
        return true;
    });
    const auto counts = by_engine(listeners);
    assert_int_equal(counts.size(), 1);
    // One that could not start gets no group later either.
    make(listeners, 3);
    assert_int_equal(by_engine(listeners).size(), 1);
}

void threads_make_and_destroy_groups_meanwhile(void **) {
    std::deque<Listener> lasting;
    make(lasting, engines);
    std::vector<std::jthread> makers;
    std::atomic<unsigned> made{0};
    for (int maker = 0; maker < 4; ++maker) {
        makers.emplace_back([&made] {
            for (int i = 0; i < 200; ++i) {
                Listener listener{true};
                hear(listener);
                ++made;
            }
        });
    }
    while (made < 800) {
        for (Listener &listener : lasting) {
            hear(listener);
        }
    }
    makers.clear();
    std::set<const soft::Engine *> found;
    for (Listener &listener : lasting) {
        found.insert(&listener.group().engine());
    }
    assert_int_equal(found.size(), engines);
}

// The child has engines of its own, with threads for its own groups, and ends while it has them.
void a_child_has_its_own(void **) {
    skip_where(CHILDREN_MAKE_NO_THREADS);
    std::deque<Listener> listeners;
    make(listeners, engines);
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        assert_int_equal(threads(), 0);
        static auto *const own = new std::deque<Listener>;  // they stay until the process ends
        make(*own, 1);
        hear(own->front());
        until([] { return threads() == 1; });
        make(*own, engines - 1);
        assert_int_equal(by_engine(*own).size(), engines);
        exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(by_engine(listeners).size(), engines);
}

void as_many_as_the_processors_are_for(void **) {
    const std::vector<std::pair<unsigned, unsigned>> expected{{0, 1}, {1, 1}, {2, 1},  {3, 1},   {4, 2},
                                                              {6, 3}, {8, 4}, {16, 4}, {1024, 4}};
    for (const auto &[processors, count] : expected) {
        assert_int_equal(soft::engines_for(processors), count);
    }
    assert_true(soft::engines_asked_for(nullptr).has_value());
    assert_int_equal(soft::engines_asked_for("1").value(), 1);
    assert_int_equal(soft::engines_asked_for("64").value(), 64);
    for (const char *const wrong : {"0", "65", "-1", "+1", " 1", "2x", "on", "99999999999999999999"}) {
        assert_int_equal(soft::engines_asked_for(wrong).error().number, EINVAL);
    }
}

}  // namespace

int main() {
    if (setenv("SOFTRDMA_ENGINES", std::to_string(engines).c_str(), 1) != 0) {
        return EXIT_FAILURE;
    }
    const CMUnitTest tests[] = {
        cmocka_unit_test(as_many_as_the_processors_are_for),
        cmocka_unit_test(they_have_equally_many_groups),
        cmocka_unit_test(a_new_group_goes_where_others_have_gone),
        cmocka_unit_test(one_has_a_thread_only_while_it_has_groups),
        cmocka_unit_test(one_that_is_busy_stops_no_other),
        cmocka_unit_test(a_group_that_changes_its_engine_loses_nothing),
        cmocka_unit_test(what_is_held_has_its_turn),
        cmocka_unit_test(deadlines_pass),
        cmocka_unit_test(a_poller_assists_the_engine_of_its_group),
        cmocka_unit_test(threads_make_and_destroy_groups_meanwhile),
        cmocka_unit_test(a_child_has_its_own),
        // This one leaves the process with fewer engines.
        cmocka_unit_test(without_a_thread_the_others_have_the_groups),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
