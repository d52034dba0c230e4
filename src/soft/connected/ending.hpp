// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/ending: the ways in which a connection ends, in one table.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/log.hpp"
#include "soft/transport/broken.hpp"

namespace soft {

enum class EndReason : std::uint8_t {
    DisconnectedHere,
    GivenUp,          // before it was connected
    RequestFailed,    // a request that was posted here
    LinkLost,         // by the network, or by the peer's silence
    Violation,        // the peer broke a rule, or cannot be served
    Terminated,       // the peer sent a TERMINATE
    Closed,           // by the peer, in order
    ClosedInside,     // by the peer, inside a message
    ClosedUnclaimed,  // by the peer; messages that found no receive are lost
};

struct Ending {
    const char *text;  // of the log line
    base::LogLevel level;
    ibv_wc_status oldest;  // of the oldest operation still open; everything behind it is flushed
    bool drain;            // the peer may still have to read
    int error;             // an errno value; 0: ended in order, by either side
};

[[nodiscard]] Ending ending_of(EndReason reason);
// `closed`: how the peer ended its bytes.
[[nodiscard]] Ending ending_of(const Broken &broken, EndReason closed);

}  // namespace soft
