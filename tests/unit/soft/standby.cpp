// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/standby: a thread of the engine that has to wait in one group stops no other group, and
// nothing is lost of what comes meanwhile. Here a source waits for the test, as it would for a page of a
// file.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "../../child.hpp"
#include "../../forks.h"
#include "soft/progress/engines.hpp"

// This comes last, because it asserts.
#include "listener.hpp"

SET_TSAN_OPTIONS("die_after_fork=0")

namespace {

using test::Clock;
using test::Listener;
using test::patience;

void until(const std::function<bool()> &condition) {
    const auto end = Clock::now() + patience;
    while (!condition()) {
        assert_true(Clock::now() < end);
        std::this_thread::yield();
    }
}

// Each turn takes one byte. The first one waits until it is allowed to end.
class Stuck final : public soft::Source {
public:
    explicit Stuck(bool waits_at_deadline = false) : waits_at_deadline_{waits_at_deadline} {
        std::array<int, 2> ends{};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
        socket_.reset(ends[0]);
        far_.reset(ends[1]);
        group_ = soft::Group::create().value_or(nullptr);
        assert_true(group_ != nullptr);
        const base::Lock lock{group_->mutex()};
        group_->add(*this, socket_.get(), {.readable = true});
    }
    Stuck(const Stuck &) = delete;
    Stuck &operator=(const Stuck &) = delete;
    ~Stuck() override {
        let_go();
        const base::Lock lock{group_->mutex()};
        group_->remove(*this, socket_.get());
    }

    void progress() override {
        char byte = 0;
        if (read(socket_.get(), &byte, 1) == 1) {
            stuck_before = all_stuck.load();
            if (!waits_at_deadline_) {
                wait();
            }
            ++served;
        }
    }
    void expire() override {
        wait();
        ++expired;
    }
    void speak() { assert_int_equal(write(far_.get(), "", 1), 1); }
    void get_stuck() {
        speak();
        until([this] { return is_stuck.load(); });
    }
    void let_go() {
        may_end_ = true;
        may_end_.notify_all();
    }
    void wait_again() {
        is_stuck = false;
        may_end_ = false;
    }
    [[nodiscard]] soft::Group &group() { return *group_; }

    static std::atomic<unsigned> all_stuck;  // how often any has got stuck

    std::atomic<bool> is_stuck{false};
    std::atomic<unsigned> stuck_before{0};  // all_stuck at its last turn
    std::atomic<unsigned> served{0};
    std::atomic<unsigned> expired{0};

private:
    void wait() {
        if (!may_end_) {
            ++all_stuck;
        }
        is_stuck = true;
        may_end_.wait(false);
    }

    const bool waits_at_deadline_;
    std::atomic<bool> may_end_{false};
    base::Fd socket_;
    base::Fd far_;
    std::shared_ptr<soft::Group> group_;
};

std::atomic<unsigned> Stuck::all_stuck{0};

void hear(Listener &listener, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) {
        speak_and_wait(listener, [] { std::this_thread::yield(); });
    }
}

void the_others_go_on(void **) {
    Listener listener;
    Stuck stuck;
    stuck.get_stuck();
    hear(listener, 1000);
    assert_int_equal(stuck.served, 0);
    stuck.let_go();
    until([&] { return stuck.served == 1; });
    hear(listener, 1000);
    stuck.speak();
    until([&] { return stuck.served == 2; });
}

// One epoll_wait returns the events of many groups, and a thread gets stuck in one of them.
void the_events_that_the_thread_had_taken_are_served(void **) {
    std::deque<Listener> listeners(20);
    for (int round = 0; round < 5; ++round) {
        Stuck stuck;
        stuck.speak();
        for (Listener &listener : listeners) {
            listener.speak();
        }
        for (const Listener &listener : listeners) {
            until([&] { return listener.read_by_engine == static_cast<unsigned>(round) + 1; });
        }
        stuck.let_go();
        until([&] { return stuck.served == 1; });
    }
}

void as_many_as_there_are(void **) {
    Listener listener;
    std::deque<Stuck> all(20);
    for (Stuck &stuck : all) {
        stuck.get_stuck();
    }
    hear(listener, 100);
    for (Stuck &stuck : all) {
        stuck.speak();
        stuck.let_go();
    }
    for (const Stuck &stuck : all) {
        until([&] { return stuck.served == 2; });
    }
    hear(listener, 100);
}

// Each of those that have been stuck may take a thread's turn again. Another group that comes before them
// waits for none of them.
void groups_that_have_been_stuck_come_last(void **) {
    Stuck other;
    other.let_go();
    std::deque<Stuck> all(20);
    for (int round = 0; round < 5; ++round) {
        for (Stuck &stuck : all) {
            stuck.wait_again();
        }
        const unsigned before = Stuck::all_stuck;
        other.speak();
        for (Stuck &stuck : all) {
            stuck.speak();
        }
        until([&] { return Stuck::all_stuck == before + all.size(); });
        if (round != 0) {  // they have not been stuck before
            assert_int_equal(other.stuck_before, before);
        }
        for (Stuck &stuck : all) {
            stuck.let_go();
        }
        for (const Stuck &stuck : all) {
            until([&] { return stuck.served == static_cast<unsigned>(round) + 1; });
        }
    }
}

void what_comes_for_a_group_meanwhile_has_its_turn(void **) {
    for (int round = 0; round < 5; ++round) {
        Listener listener;
        Stuck stuck;
        // The engine is told of each event of such a group, also while a thread is in it.
        stuck.group().begin_outside();
        stuck.get_stuck();
        for (int i = 0; i < 5; ++i) {
            stuck.speak();
            hear(listener, 1);
        }
        stuck.let_go();
        until([&] { return stuck.served == 6; });
        stuck.group().end_outside();
    }
}

// Has work again and again. The threads that do it are the engine, one after the other.
class Busy final : public soft::Source {
public:
    // The look of the standby.
    static constexpr std::chrono::milliseconds look{20};

    Busy() : group_{soft::Group::create().value()} {
        assert_int_equal(pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK), 0);
        assert_int_equal(write(ends_[1], "", 1), 1);
        const base::Lock lock{group_->mutex()};
        group_->add(*this, ends_[0], {.readable = true});
    }
    Busy(const Busy &) = delete;
    Busy &operator=(const Busy &) = delete;
    ~Busy() override {
        {
            const base::Lock lock{group_->mutex()};
            group_->remove(*this, ends_[0]);
        }
        close(ends_[0]);
        close(ends_[1]);
    }
    void progress() override {
        const pid_t self = gettid();
        const auto now = Clock::now();
        if (std::exchange(last_, self) != self && turns != 0 && now - last_turn_ < look) {
            ++too_soon;
        }
        last_turn_ = now;
        ++turns;
    }

    std::atomic<unsigned> turns{0};
    std::atomic<unsigned> too_soon{0};  // a thread has followed another one that had just had a turn

private:
    pid_t last_ = 0;
    Clock::time_point last_turn_;
    std::array<int, 2> ends_{};
    std::shared_ptr<soft::Group> group_;
};

// An engine that did not run for a while, just before a turn, looks like one that was followed too soon.
void an_engine_that_works_goes_on(void **) {
    constexpr int looks = 75;
    constexpr unsigned by_chance = 3;
    const Busy busy;
    const auto end = Clock::now() + looks * Busy::look;
    until([&] { return Clock::now() >= end && busy.turns > looks; });
    assert_in_range(busy.too_soon, 0, by_chance);
}

// A sender that holds bytes back counts on a turn by the engine.
void a_source_that_holds_bytes_back_has_its_turn(void **) {
    Listener listener;
    Stuck stuck;
    stuck.get_stuck();
    assert_true(stuck.group().tell_held(stuck));
    stuck.speak();
    hear(listener, 100);
    stuck.let_go();
    until([&] { return stuck.served == 2; });
    stuck.speak();
    assert_true(stuck.group().tell_held(stuck));
    until([&] { return stuck.served == 3; });
}

void deadlines_of_others_pass(void **) {
    Stuck stuck{true};
    Stuck other;
    other.let_go();
    {
        const base::Lock lock{stuck.group().mutex()};
        stuck.group().set_deadline(stuck, Clock::now());
    }
    until([&] { return stuck.is_stuck.load(); });
    {
        const base::Lock lock{other.group().mutex()};
        other.group().set_deadline(other, Clock::now());
    }
    until([&] { return other.expired == 1; });
    assert_int_equal(stuck.expired, 0);
    stuck.let_go();
    until([&] { return stuck.expired == 1; });
    {
        const base::Lock lock{stuck.group().mutex()};
        stuck.group().set_deadline(stuck, Clock::now());
    }
    until([&] { return stuck.expired == 2; });
}

// A thread of the program waits for memory with the group's lock, and the engine waits for that lock.
void a_lock_that_the_program_holds_stops_no_other_group(void **) {
    Listener listener;
    Listener locked;
    {
        const base::Lock lock{locked.group().mutex()};
        locked.speak();
        hear(listener, 1000);
        assert_int_equal(locked.read_by_engine, 0);
    }
    until([&] { return locked.read_by_engine == 1; });
}

// A child of the process has an engine of its own. The process ends while threads of both are stuck.
void a_process_ends_meanwhile(void **) {
    skip_where(CHILDREN_MAKE_NO_THREADS);
    Listener listener;
    Stuck stuck;
    stuck.get_stuck();
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        soft::Engines::instance().watch();
        static Listener *const own = new Listener;  // both stay until the process ends
        static Stuck *const stuck_too = new Stuck;
        stuck_too->get_stuck();
        hear(*own, 10);
        exit(0);
    }
    hear(listener, 10);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

}  // namespace

int main() {
    soft::Engines::instance().watch();
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_process_ends_meanwhile),
        cmocka_unit_test(the_others_go_on),
        cmocka_unit_test(the_events_that_the_thread_had_taken_are_served),
        cmocka_unit_test(as_many_as_there_are),
        cmocka_unit_test(groups_that_have_been_stuck_come_last),
        cmocka_unit_test(an_engine_that_works_goes_on),
        cmocka_unit_test(what_comes_for_a_group_meanwhile_has_its_turn),
        cmocka_unit_test(a_source_that_holds_bytes_back_has_its_turn),
        cmocka_unit_test(deadlines_of_others_pass),
        cmocka_unit_test(a_lock_that_the_program_holds_stops_no_other_group),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
