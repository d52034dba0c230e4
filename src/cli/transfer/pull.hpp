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
    bool incremental = false;
};

struct Pulled {
    std::unique_ptr<Session> session;
    Content content;
    std::uint64_t received = 0;  // bytes of it
};

// Receives one whole content, or the blocks in which it differs from the old file, and verifies it.
[[nodiscard]] Outcome<Pulled> receive(const Where &where, Destination &destination,
                                      const PullOptions &options);

}  // namespace cli
