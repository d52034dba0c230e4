// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/lively: the list, and a group whose waiting thread looks at the sources in it, and does not
// let their links rest. The engine takes a group from a poller that does not run for some milliseconds, and
// then all links rest; so the tests count in hundreds.
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/readable.hpp"
#include "soft/progress/progress.hpp"

// This comes last, because it asserts.
#include "../base/fixture.hpp"

namespace {

// Its descriptor is one that a test makes readable. It tells of its work without it, if the test wants that.
class FakeLink final : public soft::Link {
public:
    FakeLink() : told_{*base::Readable::create()} {}
    [[nodiscard]] Sent send(std::span<const iovec>) override { return {}; }
    bool finish() override { return true; }
    [[nodiscard]] Received receive(std::span<const iovec>) override { return {}; }
    void abort() override {}
    void abandon() override {}
    [[nodiscard]] int descriptor() const override { return told_.fd(); }
    [[nodiscard]] bool own_lent_descriptor() override { return true; }
    [[nodiscard]] base::Fd take_descriptor() override { return {}; }
    [[nodiscard]] Ready ready() const override {
        return {.readable = false, .writable = false, .ended = false};
    }
    [[nodiscard]] int failure() override { return 0; }
    [[nodiscard]] std::size_t unread_bytes() const override { return 0; }
    [[nodiscard]] bool undelivered() const override { return false; }
    void limit_unsent(std::size_t) override {}
    [[nodiscard]] const char *name() const override { return "fake"; }
    [[nodiscard]] std::size_t max_segment() const override { return 1; }

    [[nodiscard]] bool rest() override {
        ++rests;
        return true;
    }
    void reported() override { ++reports; }
    [[nodiscard]] std::optional<bool> look() override {
        return tells ? std::optional{has_work.load()} : std::nullopt;
    }
    void report(bool event) { told_.set(event); }

    std::atomic<bool> tells{false};
    std::atomic<bool> has_work{false};
    std::atomic<int> rests{0};
    std::atomic<int> reports{0};

private:
    base::Readable told_;
};

class FakeSource final : public soft::Source {
public:
    void progress() override { ++turns; }
    [[nodiscard]] soft::Link *link_to_rest() override { return &fake; }

    FakeLink fake;
    std::atomic<int> turns{0};
};

using Sources = std::vector<std::unique_ptr<FakeSource>>;

Sources sources(std::size_t number) {
    Sources made;
    for (std::size_t i = 0; i < number; ++i) {
        made.push_back(std::make_unique<FakeSource>());
        made.back()->fake.tells = true;
    }
    return made;
}

std::array<soft::Source *, soft::Lively::most> taken;

void it_takes_those_that_have_work(void **) {
    soft::Lively lively;
    const Sources three = sources(3);
    for (const auto &source : three) {
        assert_true(lively.add(*source));
        assert_true(soft::Lively::has(*source));
    }
    assert_int_equal(lively.take(taken).count, 0);
    three[1]->fake.has_work = true;
    assert_int_equal(lively.take(taken).count, 1);
    assert_ptr_equal(taken[0], three[1].get());
}

void a_link_that_does_not_tell_has_no_place(void **) {
    soft::Lively lively;
    const Sources one = sources(1);
    one[0]->fake.tells = false;
    assert_false(lively.add(*one[0]));
    assert_false(soft::Lively::has(*one[0]));
}

void so_many_have_a_place(void **) {
    soft::Lively lively;
    const Sources crowd = sources(soft::Lively::most + 1);
    for (std::size_t i = 0; i < soft::Lively::most; ++i) {
        assert_true(lively.add(*crowd[i]));
        crowd[i]->fake.has_work = true;
    }
    assert_false(lively.add(*crowd.back()));
    assert_int_equal(lively.take(taken).count, soft::Lively::most);
    lively.remove(*crowd[5]);
    lively.remove(*crowd[5]);
    assert_true(lively.add(*crowd.back()));
    assert_false(soft::Lively::has(*crowd[5]));
    assert_int_equal(lively.all().size(), soft::Lively::most);
}

// Each look leaves at most one quiet source, so the third of three leaves two looks after the first.
void those_without_work_leave_after_a_while(void **) {
    soft::Lively lively;
    const Sources three = sources(3);
    for (const auto &source : three) {
        assert_true(lively.add(*source));
    }
    three[2]->fake.has_work = true;
    int looks = 0;
    for (int left = 0; left < 2; ++looks) {
        assert_true(looks < 10'000);
        const soft::Lively::Taken look = lively.take(taken);
        assert_int_equal(look.count, 1);
        assert_true(look.quiet == nullptr || !soft::Lively::has(static_cast<FakeSource &>(*look.quiet)));
        left += look.quiet != nullptr ? 1 : 0;
    }
    assert_true(looks > 100);
    assert_int_equal(lively.all().size(), 1);
    assert_ptr_equal(lively.all()[0], three[2].get());
}

// One that is always busy does not keep the others from their turns.
void the_descriptors_are_asked_now_and_then(void **) {
    soft::Lively lively;
    const Sources one = sources(1);
    assert_true(lively.add(*one[0]));
    assert_false(lively.take(taken).alone);
    one[0]->fake.has_work = true;
    int alone = 0;
    while (lively.take(taken).alone) {
        assert_true(++alone < 100);
    }
    assert_true(alone > 1);
    assert_true(lively.take(taken).alone);
}

// ---- a group ----

// A thread that waits in the library has the group for itself. Between two waits the engine may serve it, and
// then all links rest, so the tests count in hundreds.
struct Waiting {
    Waiting() : group{*soft::Group::create()}, members{sources(3)} {
        const base::Lock lock{group->mutex()};
        for (const auto &source : members) {
            group->add(*source, source->fake.descriptor(), {.readable = true});
        }
    }
    ~Waiting() {
        const base::Lock lock{group->mutex()};
        for (const auto &source : members) {
            group->remove(*source, source->fake.descriptor());
        }
    }
    Waiting(const Waiting &) = delete;
    Waiting &operator=(const Waiting &) = delete;

    // Looks so many times. A look takes no turn while the engine has the group.
    void wait(int times) const {
        const std::array groups{group};
        for (int i = 0; i < times; ++i) {
            assert_true(soft::Group::wait(groups, never.fd(), [] { return true; }));
        }
    }
    // Looks until it is so, which must be within 40 seconds.
    template <typename IsSo>
    void wait_until(IsSo is_so) const {
        for (const auto limit = base::Clock::now() + std::chrono::seconds{40}; !is_so();) {
            assert_true(base::Clock::now() < limit);
            wait(1);
        }
    }
    [[nodiscard]] FakeSource &at(std::size_t index) const { return *members[index]; }
    void make_lively(FakeSource &source) const {
        source.fake.report(true);
        wait_until([&] {
            const base::Lock lock{group->mutex()};
            return soft::Lively::has(source);
        });
        source.fake.report(false);
    }

    const std::shared_ptr<soft::Group> group;
    const Sources members;
    const base::Readable never{*base::Readable::create()};
};

constexpr int many = 500;  // fewer than the looks in vain that a lively source may have

void its_work_needs_no_descriptor(Waiting &waiting) {
    waiting.make_lively(waiting.at(0));
    const int rests = waiting.at(0).fake.rests;
    waiting.at(0).fake.has_work = true;
    const int turns = waiting.at(0).turns + many;
    waiting.wait_until([&] { return waiting.at(0).turns >= turns; });
    assert_true(waiting.at(0).fake.rests - rests < many / 2);
    assert_int_equal(waiting.at(1).turns, 0);
}

void a_link_that_does_not_tell_rests_after_each_turn(Waiting &waiting) {
    FakeSource &source = waiting.at(0);
    source.fake.tells = false;
    source.fake.report(true);
    waiting.wait_until([&] { return source.turns >= many; });
    const base::Lock lock{waiting.group->mutex()};  // not in the middle of a turn of the engine
    assert_true(source.fake.rests >= many && source.fake.reports >= many);
}

void it_rests_when_a_thread_sleeps(Waiting &waiting) {
    waiting.make_lively(waiting.at(0));
    const int rests = waiting.at(0).fake.rests;
    waiting.group->begin_outside();
    assert_true(waiting.at(0).fake.rests > rests);
    waiting.group->end_outside();
}

void one_that_leaves_the_group_is_not_looked_at(Waiting &waiting) {
    waiting.make_lively(waiting.at(0));
    FakeSource &source = waiting.at(0);
    {
        const base::Lock lock{waiting.group->mutex()};
        waiting.group->remove(source, source.fake.descriptor());
        assert_false(soft::Lively::has(source));
    }
    const int turns = source.turns;
    source.fake.has_work = true;
    waiting.wait(many);
    assert_int_equal(source.turns, turns);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(it_takes_those_that_have_work),
        cmocka_unit_test(a_link_that_does_not_tell_has_no_place),
        cmocka_unit_test(so_many_have_a_place),
        cmocka_unit_test(those_without_work_leave_after_a_while),
        cmocka_unit_test(the_descriptors_are_asked_now_and_then),
        fixture_test(its_work_needs_no_descriptor),
        fixture_test(a_link_that_does_not_tell_rests_after_each_turn),
        fixture_test(it_rests_when_a_thread_sleeps),
        fixture_test(one_that_leaves_the_group_is_not_looked_at),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
