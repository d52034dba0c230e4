// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/push: the options of `rpma push`, and a push to one of several servers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/transfer/replicas.hpp"
#include "cli/transfer/source.hpp"
#include "cli/transfer/transfer.hpp"

namespace cli {

struct PushOptions : TransferOptions {
    std::vector<std::string> addresses;  // of all servers
    std::vector<std::string> program;    // its output is the content; empty without --run
    std::string label;
    std::string min_size;
    std::optional<std::uint64_t> if_sequence;
    std::optional<std::uint64_t> quorum;
    std::optional<std::uint64_t> epoch;
    bool allow_empty = false;
    bool runs = false;
    bool incremental = false;
    bool resume = false;

    // Returns whether the content is one of a register: a single server may be all of it.
    [[nodiscard]] bool is_for_several() const { return addresses.size() > 1 || quorum || epoch; }
};

// Has a server commit a content that has a tag, unless it has it already, or a newer one. The source is that
// content.
[[nodiscard]] Reply push_tagged(const Where &server, Source &source, const Order &order,
                                const PushOptions &options);

}  // namespace cli
