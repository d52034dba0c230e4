// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/nudges: a thread that sleeps on the descriptor wakes for each source, and for nothing else.
#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <thread>

#include "soft/progress/nudges.hpp"

// This comes last, because it asserts.
#include "../base/fixture.hpp"

namespace {

class FakeSource final : public soft::Source {
public:
    void progress() override {}
};

struct Open : soft::Nudges {
    Open() { assert_true(open()); }
    [[nodiscard]] bool is_told() const {
        pollfd told{.fd = fd(), .events = POLLIN, .revents = 0};
        return poll(&told, 1, 0) == 1;
    }
    // Takes some for a thread that will sleep on the descriptor, and for one that will not.
    [[nodiscard]] std::size_t take_some() {
        hush();
        return take_some_untold();
    }
    [[nodiscard]] std::size_t take_some_untold() {
        std::array<soft::Source *, 2> taken;
        return any() ? take(taken) : 0;
    }
};

void it_is_told_as_long_as_there_is_one(Open &nudges) {
    std::array<FakeSource, 3> sources;
    assert_false(nudges.is_told());
    for (FakeSource &source : sources) {
        nudges.give(source);
        nudges.give(source);
        assert_true(nudges.is_told());
    }
    assert_int_equal(nudges.take_some(), 2);
    assert_true(nudges.is_told());
    assert_int_equal(nudges.take_some(), 1);
    assert_false(nudges.is_told());
    assert_false(nudges.any());
}

void a_forgotten_one_leaves_the_others(Open &nudges) {
    std::array<FakeSource, 2> sources;
    for (FakeSource &source : sources) {
        nudges.give(source);
    }
    nudges.forget(sources[0]);
    assert_true(nudges.is_told());
    nudges.forget(sources[1]);
    assert_false(nudges.any());
    nudges.settle();
    assert_false(nudges.is_told());
}

void a_thread_that_does_not_sleep_is_told_once(Open &nudges) {
    FakeSource source;
    for (int i = 0; i < 3; ++i) {
        nudges.give(source);
        assert_int_equal(nudges.take_some_untold(), 1);
    }
    eventfd_t writes = 0;
    assert_int_equal(eventfd_read(nudges.fd(), &writes), 0);
    assert_int_equal(writes, 1);
}

void one_that_is_there_before_the_sleep_is_told(Open &nudges) {
    FakeSource source;
    nudges.give(source);
    assert_int_equal(nudges.take_some_untold(), 1);
    nudges.give(source);
    nudges.settle();
    assert_true(nudges.is_told());
    assert_int_equal(nudges.take_some_untold(), 1);
    nudges.settle();
    assert_false(nudges.is_told());
}

// The taker may come between the two steps of the giver. A descriptor that then stays readable would keep a
// thread that sleeps on it from sleeping.
void a_giver_that_is_late_leaves_nothing_behind(Open &nudges) {
    constexpr int rounds = 3000;
    FakeSource source;
    std::atomic<int> round{0};
    std::atomic<int> given{0};
    const std::jthread giver{[&] {
        for (int i = 1; i <= rounds; ++i) {
            while (round < i) {
                std::this_thread::yield();
            }
            nudges.give(source);
            given = i;
        }
    }};
    int told = 0;
    for (int i = 1; i <= rounds; ++i) {
        round = i;
        std::size_t taken = 0;
        while (given < i || nudges.any()) {
            taken += nudges.take_some();
        }
        assert_int_equal(taken, 1);
        nudges.settle();
        told += nudges.is_told() ? 1 : 0;
    }
    assert_int_equal(told, 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        fixture_test(it_is_told_as_long_as_there_is_one),
        fixture_test(a_forgotten_one_leaves_the_others),
        fixture_test(a_thread_that_does_not_sleep_is_told_once),
        fixture_test(one_that_is_there_before_the_sleep_is_told),
        fixture_test(a_giver_that_is_late_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
