// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/broken: why a connection cannot go on, as a value. The transport finds it and returns it;
// the queue pair alone ends the connection.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "soft/wire/rdmap.hpp"

namespace soft {

struct Broken {
    enum class By : std::uint8_t {
        Violation,  // the peer broke a rule, or this side cannot serve it: the peer is told by a TERMINATE
        Network,    // the link failed, or was given up with an errno value
        Cut,        // the same, but what the link has still reaches the peer
        Terminate,  // the peer sent a TERMINATE
        End         // the peer ended its bytes
    };
    By by;
    int error = 0;                               // Network, Cut: an errno value; 0: a request failed here
    ibv_wc_status oldest = IBV_WC_WR_FLUSH_ERR;  // Terminate: of the oldest operation that is open
    wire::Violation violation{"", {}};           // Violation
    std::array<std::byte, wire::untagged_bytes> header{};  // of the segment at hand, header_bytes of it
    std::size_t header_bytes = 0;
    // The body of a read that is refused, in the receiver's memory. g++ asks for the initializer where a
    // Broken names some members only.
    std::span<const std::byte> read_request{};  // NOLINT(readability-redundant-member-init)
};

// A result, or the reason why the connection ends.
template <typename T = void>
using Outcome = std::expected<T, Broken>;

}  // namespace soft
