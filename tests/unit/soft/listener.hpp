// SPDX-License-Identifier: BSD-3-Clause
// The group here has one socket. Tests ask which thread serves it.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>

#include "soft/progress/progress.hpp"

// This comes last, because it asserts.
#include "fpdu.hpp"

namespace test {

using Clock = base::Clock;
inline constexpr std::chrono::seconds patience{30};

// This socket counts its bytes by the thread that reads them.
class Listener final : public soft::Source {
public:
    // A group that is spread may have another engine than the first.
    explicit Listener(bool is_spread = false) {
        std::array<int, 2> ends{};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
        socket_.reset(ends[0]);
        far_.reset(ends[1]);
        group_ = soft::Group::create().value_or(nullptr);
        assert_true(group_ != nullptr);
        const base::Lock lock{group_->mutex()};
        if (is_spread) {
            group_->spread();
        }
        group_->add(*this, socket_.get(), {.readable = true});
    }
    Listener(const Listener &) = delete;
    Listener &operator=(const Listener &) = delete;
    ~Listener() override {
        const base::Lock lock{group_->mutex()};
        group_->remove(*this, socket_.get());
    }

    // Each turn takes one byte.
    void progress() override {
        char byte = 0;
        if (read(socket_.get(), &byte, 1) == 1) {
            const pid_t reader = gettid();
            if (reader != tester_) {
                engine = reader;
            }
            ++(reader == tester_ ? read_by_tester : read_by_engine);
        }
    }

    void speak() { assert_int_equal(write(far_.get(), "", 1), 1); }
    [[nodiscard]] soft::Group &group() { return *group_; }
    [[nodiscard]] unsigned read_by_all() const { return read_by_tester + read_by_engine; }

    std::atomic<unsigned> read_by_tester{0};
    std::atomic<unsigned> read_by_engine{0};
    std::atomic<pid_t> engine{0};  // the thread, once it has read

private:
    const pid_t tester_ = gettid();
    base::Fd socket_;
    base::Fd far_;
    std::shared_ptr<soft::Group> group_;
};

// Sends a byte, and calls `meanwhile` until a thread has read it.
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

// Returns for how long the thread of the engine has run. It must have read a byte before.
inline unsigned long engine_ns(const Listener &listener) {
    std::ifstream file{"/proc/self/task/" + std::to_string(listener.engine) + "/schedstat"};
    unsigned long busy_ns = 0;
    file >> busy_ns;
    assert_true(file.good());
    return busy_ns;
}

}  // namespace test
