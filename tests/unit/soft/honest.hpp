// SPDX-License-Identifier: BSD-3-Clause
// The peer that keeps all rules while others break them, over TCP or, with RPMA_TLS, over TLS. Every function
// asserts (cmocka) that it succeeds, and none waits longer than 40 s.
#pragma once

#include <optional>

#include "../../wire.hpp"

// This comes last, because it asserts.
#include "attacker.hpp"

namespace test {

class Honest {
public:
    // Asks the device for a connection. Returns its id there.
    [[nodiscard]] rdma_cm_id *connect(Device &device, const soft::wire::MpaFrame &request);
    void send(std::span<const std::byte> bytes);
    // Returns the next whole FPDU, or nothing while there is none.
    [[nodiscard]] std::optional<Fpdu> take_fpdu();

private:
    // Takes the bytes that have come.
    void take();

    Peer peer_;
    std::optional<Wire> wire_;
    Bytes in_;
};

}  // namespace test
