// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/pull: the options of `rpma pull`, and a pull from one server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/transfer/destination.hpp"
#include "cli/transfer/transfer.hpp"

namespace cli {

struct PullOptions : TransferOptions {
    std::vector<std::string> addresses;  // of all servers
    std::uint64_t sequence = 0;          // 0 is the newest content
};

struct Pulled {
    std::unique_ptr<Session> session;
    Content content;
};

// Receives one whole content, and verifies it.
[[nodiscard]] Outcome<Pulled> receive(const Where &where, Destination &destination,
                                      const PullOptions &options);

}  // namespace cli
