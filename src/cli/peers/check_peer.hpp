// SPDX-License-Identifier: BSD-3-Clause
// cli/peers/check_peer: `rpma check HOST:PORT` tells which protocol a server speaks, and without a server
// `rpma check` tells whether the files of TLS can be used.
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

// Prints that the files of TLS can be used, which are those of required_tls(). Fails when they cannot.
[[nodiscard]] Outcome<> check_tls(bool json);

}  // namespace cli
