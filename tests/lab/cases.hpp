// SPDX-License-Identifier: BSD-3-Clause
// interop: the cases that two ends must be able to do with each other. Each case has a connection of its own.
#pragma once

#include <span>

#include "end.hpp"

namespace interop {

struct Case {
    const char *name;
    // The client's part begins with rdma_connect; the server's begins before it accepts or rejects.
    void (*client)(End &end, const Case &which);
    void (*server)(End &end, const Case &which, const Hello &client);
    // The operations have these sizes, where the case has a list.
    std::span<const std::size_t> sizes = {};
    std::size_t private_bytes = sizeof(Hello);
    std::uint8_t server_depth = default_depth;  // reads that the server grants
};

std::span<const Case> cases();

}  // namespace interop
