// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/group_wait: a thread that waits does what a source has left, unless its event is there.
#include <sys/eventfd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>

#include "base/fd.hpp"
#include "soft/progress/progress.hpp"

// This comes last, because it asserts.
#include "../base/fixture.hpp"

namespace {

class Leaving final : public soft::Source {
public:
    Leaving() : group{*soft::Group::create()} {
        assert_true(group->allow_nudges().has_value());
        const base::Lock lock{group->mutex()};
        group->add(*this, quiet_.get(), {.readable = true});
    }
    ~Leaving() override {
        const base::Lock lock{group->mutex()};
        group->remove(*this, quiet_.get());
    }
    Leaving(const Leaving &) = delete;
    Leaving &operator=(const Leaving &) = delete;

    void progress() override { ++turns; }
    void leave() {
        leave_to_sleeper(job_);
        group->nudge(*this);
    }
    [[nodiscard]] bool wait_until(const std::function<bool()> &ready) {
        return soft::Group::wait(std::span{&group, 1}, quiet_.get(), ready);
    }

    std::shared_ptr<soft::Group> group;
    std::atomic<unsigned> turns{0};  // the engine may serve too
    bool is_done = false;

private:
    const base::Fd quiet_{eventfd(0, EFD_CLOEXEC)};
    persist::Job job_{.run = [](void *leaving) { static_cast<Leaving *>(leaving)->is_done = true; },
                      .argument = this};
};

void a_thread_that_would_sleep_does_it(Leaving &source) {
    source.leave();
    assert_true(source.wait_until([&] { return source.is_done; }));
    assert_false(source.has_left());
}

// The job may wait long for storage, and other threads do not know of the event.
void an_event_that_is_there_comes_first(Leaving &source) {
    source.leave();
    const unsigned before = source.turns;
    assert_true(source.wait_until([&] { return source.turns != before; }));
    assert_false(source.is_done);
    assert_true(source.has_left());
    assert_true(source.wait_until([&] { return source.is_done; }));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        fixture_test(a_thread_that_would_sleep_does_it),
        fixture_test(an_event_that_is_there_comes_first),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
