// SPDX-License-Identifier: BSD-3-Clause
// cli/peers/check_peer: `rpma check HOST:PORT` tells which protocol a server speaks.
#pragma once

#include <string>

#include "cli/failure.hpp"

namespace cli {

struct PeerOptions {
    std::string address;
    double timeout_seconds = 3;
    bool at_once = false;
    bool json = false;
};

// Prints the result. Fails with Exit::Refused when the server has neither rsockets nor a store, and with
// Exit::Unreachable when there is no server.
[[nodiscard]] Outcome<> check_peer(const PeerOptions &options);

}  // namespace cli
