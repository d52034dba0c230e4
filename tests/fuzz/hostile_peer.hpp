// SPDX-License-Identifier: BSD-3-Clause
// The target `connection` attacks the device with this peer. It is a TCP socket that sends the bytes that the
// target gives it, in the same pieces, and lets the device work in between. With RPMA_TLS the bytes go in
// TLS.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "../wire.hpp"
#include "fuzz_device.hpp"

namespace fuzz {

class HostilePeer {
public:
    // Connects to the device, which will accept or reject the request.
    HostilePeer(FuzzDevice &device, const Acceptance &acceptance);
    // Has the device connect to this peer. The device posts this many receives before.
    HostilePeer(FuzzDevice &device, unsigned receives);
    ~HostilePeer();
    HostilePeer(const HostilePeer &) = delete;
    HostilePeer &operator=(const HostilePeer &) = delete;

    // Sends the bytes, and lets the device see them before more are sent.
    void send(std::span<const std::byte> bytes);
    void turn();
    // Waits until the device has answered the start-up frame, or has ended the connection.
    void await_answer();
    // Closes this side for sending, and requires that the device closes its side within a bound.
    void finish();
    // Resets the connection.
    void reset();
    // Returns the bytes that have been received.
    [[nodiscard]] std::span<const std::byte> received() const { return received_; }

private:
    void open_wire(test::Wire::Side side);
    // Receives the bytes that are there, and notices the end.
    void receive();

    FuzzDevice &device_;
    int socket_ = -1;
    std::optional<test::Wire> wire_;
    bool ended_ = false;
    std::vector<std::byte> received_;
};

}  // namespace fuzz
