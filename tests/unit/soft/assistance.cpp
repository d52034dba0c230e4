// SPDX-License-Identifier: BSD-3-Clause
// soft/progress: a poller with nothing to do serves the groups that are the engine's, until it stops.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "soft/progress.hpp"

// Last, as it wants.
#include "fpdu.hpp"

namespace {

using Clock = base::Clock;
constexpr std::chrono::seconds patience{30};

// A socket whose bytes are counted by who reads them.
class Listener final : public soft::Source {
public:
    Listener() {
        std::array<int, 2> ends{};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
        socket_.reset(ends[0]);
        far_.reset(ends[1]);
        group_ = soft::Group::create();
        assert_true(group_ != nullptr);
        const std::scoped_lock lock{group_->mutex()};
        group_->add(*this, socket_.get(), {.readable = true});
    }
    ~Listener() override {
        const std::scoped_lock lock{group_->mutex()};
        group_->remove(*this, socket_.get());
    }

    void progress() override {
        char byte = 0;
        while (read(socket_.get(), &byte, 1) == 1) {
            ++(std::this_thread::get_id() == tester_ ? read_by_tester : read_by_engine);
        }
    }

    void speak() { assert_int_equal(write(far_.get(), "", 1), 1); }
    [[nodiscard]] unsigned read_by_all() const { return read_by_tester + read_by_engine; }

    std::atomic<unsigned> read_by_tester{0};
    std::atomic<unsigned> read_by_engine{0};

private:
    const std::thread::id tester_ = std::this_thread::get_id();
    base::Fd socket_;
    base::Fd far_;
    std::shared_ptr<soft::Group> group_;
};

// Speaks, and waits with `meanwhile` until that was heard.
template <typename Meanwhile>
void speak_and_wait(Listener &listener, Meanwhile meanwhile) {
    const unsigned heard = listener.read_by_all();
    listener.speak();
    const auto end = Clock::now() + patience;
    while (listener.read_by_all() == heard) {
        assert_true(Clock::now() < end);
        meanwhile();
    }
}

void a_dense_poller_reads_what_the_engine_would(void **) {
    Listener listener;
    std::atomic<Clock::time_point> last{};
    const auto end = Clock::now() + patience;
    while (listener.read_by_tester == 0) {
        assert_true(Clock::now() < end);
        speak_and_wait(listener, [&last] { soft::Engine::instance().assist(last); });
    }
}

void the_engine_goes_on_when_the_poller_stops_without_a_word(void **) {
    Listener listener;
    std::atomic<Clock::time_point> last{};
    for (int i = 0; i < 1000; ++i) {
        soft::Engine::instance().assist(last);
    }
    speak_and_wait(listener, [] { std::this_thread::yield(); });
    assert_int_equal(listener.read_by_engine, 1);
}

void the_engine_goes_on_when_the_poller_says_so(void **) {
    Listener listener;
    std::atomic<Clock::time_point> last{};
    for (int i = 0; i < 1000; ++i) {
        soft::Engine::instance().assist(last);
    }
    soft::Engine::instance().end_assistance();
    speak_and_wait(listener, [] { std::this_thread::yield(); });
    assert_int_equal(listener.read_by_engine, 1);
}

void a_poller_that_comes_seldom_is_left_alone(void **) {
    Listener listener;
    for (int i = 0; i < 100; ++i) {
        std::atomic<Clock::time_point> long_ago{};
        listener.speak();
        soft::Engine::instance().assist(long_ago);
        speak_and_wait(listener, [] { std::this_thread::yield(); });
    }
    assert_int_equal(listener.read_by_tester, 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_dense_poller_reads_what_the_engine_would),
        cmocka_unit_test(the_engine_goes_on_when_the_poller_stops_without_a_word),
        cmocka_unit_test(the_engine_goes_on_when_the_poller_says_so),
        cmocka_unit_test(a_poller_that_comes_seldom_is_left_alone),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
