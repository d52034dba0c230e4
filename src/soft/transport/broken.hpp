// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/broken: the reason why a connection cannot continue, as a value. The transport returns it;
// only the queue pair ends the connection.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "soft/wire/rdmap.hpp"

namespace soft {

// Why a connection ends. connected/ending.cpp has the table of what each means.
enum class EndReason : std::uint8_t {
    // The queue pair itself ends it for these.
    DisconnectedHere,
    GivenUp,          // it ended before it was connected
    ClosedInside,     // the peer ended its bytes inside a message
    ClosedUnclaimed,  // the peer ended its bytes; messages that found no receive are lost
    // The transport returns these.
    Closed,         // the peer ended its bytes
    Link,           // the link failed with Broken::error
    Silence,        // the peer did not send in time
    Cut,            // an injected fault; the peer still gets the bytes that the link has
    AccessLost,     // the peer may no longer read the memory of an answer
    MemoryGone,     // memory whose bytes are to be sent is no longer mapped
    Overrun,        // a completion queue is full
    NoMemory,       // this process has no memory for what the peer sends
    RequestFailed,  // a request that was posted here failed
    Violation,      // the peer broke a rule, or this side cannot serve it: it gets a TERMINATE
    Terminated,     // the peer sent a TERMINATE
    NotDurable,     // a flush of the peer's memory that this process made failed
};

struct Broken {
    EndReason by;
    int error = 0;                               // Link: an errno value
    ibv_wc_status oldest = IBV_WC_WR_FLUSH_ERR;  // Terminated: the status of the oldest open operation
    wire::Violation violation{"", {}};           // Violation
    std::array<std::byte, wire::untagged_bytes> header{};  // of the current segment, header_bytes of it
    std::size_t header_bytes = 0;
    // The body of a refused read, in the receiver's memory. g++ asks for the initializer where a Broken names
    // only some members.
    std::span<const std::byte> read_request{};  // NOLINT(readability-redundant-member-init)
};

// A result, or the reason why the connection ends.
template <typename T = void>
using Outcome = std::expected<T, Broken>;

// Returns an Outcome that has nothing but this reason.
[[nodiscard]] inline std::unexpected<Broken> broken_by(EndReason by) {
    return std::unexpected{Broken{.by = by}};
}

}  // namespace soft
