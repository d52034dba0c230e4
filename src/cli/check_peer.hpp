// SPDX-License-Identifier: BSD-3-Clause
// cli/check_peer: `rpma check HOST:PORT` says what a server speaks.
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

// Prints what was found. Exit::Refused: the server has neither rsockets nor a pool. Exit::Unreachable: there
// is none.
[[nodiscard]] Outcome<> check_peer(const PeerOptions &options);

}  // namespace cli
