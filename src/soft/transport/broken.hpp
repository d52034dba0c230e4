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

struct Broken {
    enum class By : std::uint8_t {
        Violation,      // the peer broke a rule, or this side cannot serve it: it gets a TERMINATE
        RequestFailed,  // a request that was posted here failed
        AccessLost,     // the peer may no longer read the memory of an answer
        MemoryGone,     // memory whose bytes are to be sent is no longer mapped
        Overrun,        // a completion queue is full
        NotDurable,     // a flush of the peer's memory that this process made failed
        NoMemory,       // this process has no memory for what the peer sends
        Silence,        // the peer did not send in time
        Link,           // the link failed with `error`
        Cut,            // an injected fault; the peer still gets the bytes that the link has
        Terminate,      // the peer sent a TERMINATE
        End             // the peer ended its bytes
    };
    By by;
    int error = 0;                               // Link: an errno value
    ibv_wc_status oldest = IBV_WC_WR_FLUSH_ERR;  // Terminate: the status of the oldest open operation
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
[[nodiscard]] inline std::unexpected<Broken> broken_by(Broken::By by) {
    return std::unexpected{Broken{.by = by}};
}

}  // namespace soft
