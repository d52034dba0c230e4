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
    GivenUp,          // it ended before it was connected
    RequestFailed,    // a request that was posted here failed
    LinkLost,         // the network failed, or the peer was silent
    Violation,        // the peer broke a rule, or cannot be served
    Terminated,       // the peer sent a TERMINATE
    NotDurable,       // a flush of the peer's memory, made here, failed
    Closed,           // the peer closed in order
    ClosedInside,     // the peer closed inside a message
    ClosedUnclaimed,  // the peer closed; messages that found no receive are lost
};

struct Ending {
    const char *text;  // the log line's text
    base::LogLevel level;
    ibv_wc_status oldest;  // the status of the oldest open operation; all later ones are flushed
    bool drain;            // the peer may still have to read
    int error;             // an errno value; 0 when either side ended it in order
};

[[nodiscard]] Ending ending_of(EndReason reason);
// Returns the row for a Broken. `closed` tells how the peer ended its bytes.
[[nodiscard]] Ending ending_of(const Broken &broken, EndReason closed);

}  // namespace soft
