// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/nudges: the descriptor is readable while there is a source to take, and no longer.
#include <poll.h>

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
    [[nodiscard]] std::size_t take_some() {
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
    assert_false(nudges.any() && nudges.take_some() != 0);
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
        told += nudges.is_told() ? 1 : 0;
    }
    assert_int_equal(told, 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        fixture_test(it_is_told_as_long_as_there_is_one),
        fixture_test(a_forgotten_one_leaves_the_others),
        fixture_test(a_giver_that_is_late_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
