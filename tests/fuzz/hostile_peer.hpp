// SPDX-License-Identifier: BSD-3-Clause
// The peer of the target `connection`: a TCP socket that sends what it is given, in the pieces it is given,
// while the device it attacks takes its turns.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "fuzz_device.hpp"

namespace fuzz {

class HostilePeer {
public:
    // Connected; the device will accept or reject what it asks for.
    HostilePeer(FuzzDevice &device, const Acceptance &acceptance);
    // Connected by the device, which asks; it posts so many receives before.
    HostilePeer(FuzzDevice &device, unsigned receives);
    ~HostilePeer();
    HostilePeer(const HostilePeer &) = delete;
    HostilePeer &operator=(const HostilePeer &) = delete;

    // Sends it, and lets the device see just this much.
    void send(std::span<const std::byte> bytes);
    void turn();
    // Waits for the device's answer to the start-up; the connection may end instead.
    void await_answer();
    // Says that there is no more, then waits until the device has closed its side: within a bound.
    void finish();
    // Goes without a word.
    void reset();
    // What has been received.
    [[nodiscard]] std::span<const std::byte> received() const { return received_; }

private:
    void set_options() const;
    // Takes what there is; sees the end.
    void receive();

    FuzzDevice &device_;
    int socket_ = -1;
    bool ended_ = false;
    std::vector<std::byte> received_;
};

}  // namespace fuzz
