// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/health: what a server tells about itself: a line of JSON. There is no I/O here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"
#include "cli/protocol/note.hpp"

namespace cli {

// Why the server would not take a push, or a newest content is not good.
struct Reason {
    std::string kind;  // deleted, truncated, damaged, store, storage, slow, room or behind
    std::string name;  // of the content; empty when it concerns all
    std::uint64_t sequence = 0;
    std::string text;

    // Returns it for people.
    [[nodiscard]] std::string sentence() const;
};

struct Pushing {
    std::string name;
    std::string host;
    std::string identity;  // empty without TLS
    std::uint64_t seconds = 0;
};

// A commit that storage has not ended.
struct Committing {
    Pushing push;       // with the time since the commit was asked for
    bool left = false;  // its client is gone
};

// The contents that a server with --follow lacks, as far as its leader has told.
struct Following {
    std::string leader;
    std::uint64_t contents = 0;
    std::uint64_t bytes = 0;  // of these contents
    // Since the leader told it; none when it has not yet.
    std::optional<std::uint64_t>
        seconds{};  // NOLINT(readability-redundant-member-init): g++ wants one where it is left out
    // To the server that follows none; 0 as long as that is unknown, or when the server is an older one.
    std::uint64_t hops = 0;
};

struct Health {
    std::string version;  // of the server
    std::uint64_t uptime_seconds = 0;
    std::string store;   // its identity; empty when the server is an older one
    std::string memory;  // durability_text()
    bool durable = false;
    std::uint64_t names = 0;
    std::uint64_t contents = 0;
    std::uint64_t faulty = 0;  // contents of which a fault is known, the newest ones or not
    std::uint64_t bytes = 0;   // of contents, and of pushes that are under way
    std::uint64_t capacity = 0;
    std::optional<std::uint64_t> free_bytes;  // for the next push; none when storage has not told it
    std::uint64_t clients = 0;
    std::vector<Pushing> pushes;
    std::vector<Committing> commits;
    Listed last;  // the last commit; its sequence is 0 without one
    std::optional<Following> follows;
    std::vector<Reason> reasons;
};

[[nodiscard]] std::string encode_health(const Health &health);
// Returns what the text tells, or why it tells nothing. Any byte may come from a peer.
[[nodiscard]] Outcome<Health> decode_health(std::string_view text);

}  // namespace cli
