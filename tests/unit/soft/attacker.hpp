// SPDX-License-Identifier: BSD-3-Clause
// This is one hostile peer of the device, as initiator or as responder. It decides how the connection starts,
// which frames it sends (disorder.hpp), in which pieces, and when it leaves. It asserts that the device
// treats it as the protocol wants. With TLS (RPMA_TLS) it has the key, and some of these peers spoil their
// bytes below TLS, during the handshake or later.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "disorder.hpp"

#include "../../wire.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace test {

// This deadline only notices a hang. It measures nothing.
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
    std::uint64_t spoilt = 0;  // below TLS
};

class Attacker {
public:
    // Makes a responder. The program has to connect to its port before the first step.
    Attacker(const Aims &aims, Dice &dice, Tally &tally);
    // Makes an initiator, which asks the device at this port for a connection.
    Attacker(std::uint16_t device_port, const Aims &aims, Dice &dice, Tally &tally);
    ~Attacker();
    Attacker(const Attacker &) = delete;
    Attacker &operator=(const Attacker &) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    // Notes that the program on the other side has ended or rejected the connection.
    void dropped_by_program() { verdict_ = Verdict::Unknown; }
    // Returns whether this peer has broken a rule and still reads the answer of the device.
    [[nodiscard]] bool must_end() const {
        return (verdict_ == Verdict::Terminated || verdict_ == Verdict::Closed) && reads_ && !silent_;
    }
    // Does one step. Returns false when the connection is over.
    [[nodiscard]] bool step();

private:
    Attacker(const soft::wire::MpaFrame &first, const Aims &aims, Dice &dice, Tally &tally);
    void start();
    void speak();
    void open_wire();
    void give();
    [[nodiscard]] bool take();
    void understand();
    void check_end(int error) const;

    Dice &dice_;
    Tally &tally_;
    Peer peer_;
    std::optional<Wire> wire_;  // as soon as the peer has its connection
    std::uint16_t port_ = 0;
    const soft::wire::MpaFrame first_;  // its request or its reply
    Disorder disorder_;
    Bytes out_;
    std::uint64_t frames_in_out_ = 0;
    Bytes in_;
    bool greeted_ = false;  // the device's start-up frame is here
    bool terminated_ = false;
    bool silent_ = false;  // sends nothing more
    bool spoilt_ = false;  // below TLS
    const bool reads_;     // whether it ever reads
    const bool drips_;     // sends a few bytes at a time
    const bool
        resets_;  // at its end, instead of closing; most do, because each that closes keeps its port a minute
    Verdict verdict_ = Verdict::Goes_on;
    std::uint64_t patience_;  // the steps until it leaves
    std::unique_ptr<Clock> deadline_;
};

}  // namespace test
