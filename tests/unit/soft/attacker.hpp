// SPDX-License-Identifier: BSD-3-Clause
// One hostile peer of the device, at either end of a connection: its start-up, what it says (disorder.hpp),
// how, and when it goes; and whether the device dealt with it as it deserves.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "disorder.hpp"

// Last, as it wants.
#include "device.hpp"

namespace test {

// A bound, not a measure.
class Clock {
public:
    [[nodiscard]] bool passed() const { return std::chrono::steady_clock::now() > at_; }

private:
    std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now() + std::chrono::seconds{40};
};

struct Tally {
    std::uint64_t frames = 0;
    std::uint64_t connections = 0;
    std::uint64_t terminates = 0;
    std::uint64_t closed = 0;
};

class Attacker {
public:
    // One that listens, and is asked: the program has to connect to its port before the first step.
    Attacker(const Aims &aims, Dice &dice, Tally &tally);
    // One that asks the device at this port.
    Attacker(std::uint16_t device_port, const Aims &aims, Dice &dice, Tally &tally);
    ~Attacker();
    Attacker(const Attacker &) = delete;
    Attacker &operator=(const Attacker &) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    // The program on the other side ended it, or did not want it.
    void dropped_by_program() { verdict_ = Verdict::Unknown; }
    // It broke a rule, and listens to what is said of it.
    [[nodiscard]] bool must_end() const {
        return (verdict_ == Verdict::Terminated || verdict_ == Verdict::Closed) && reads_ && !silent_;
    }
    // False when it is over.
    [[nodiscard]] bool step();

private:
    Attacker(const soft::wire::MpaFrame &first, const Aims &aims, Dice &dice, Tally &tally);
    void start();
    void speak();
    void give();
    [[nodiscard]] bool take();
    void understand();
    void check_end(int error) const;

    Dice &dice_;
    Tally &tally_;
    Peer peer_;
    std::uint16_t port_ = 0;
    const soft::wire::MpaFrame first_;  // what it asks, or replies
    Disorder disorder_;
    Bytes out_;
    std::uint64_t frames_in_out_ = 0;
    Bytes in_;
    bool greeted_ = false;  // the device's start-up frame is here
    bool terminated_ = false;
    bool silent_ = false;  // says nothing more
    const bool reads_;     // or never does
    const bool drips_;     // a few bytes at a time
    const bool
        resets_;  // at its end, instead of closing; most do, for each that closes keeps its port a minute
    Verdict verdict_ = Verdict::Goes_on;
    std::uint64_t patience_;  // steps that it stays
    std::unique_ptr<Clock> deadline_;
};

}  // namespace test
