// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/ending: the ways in which a connection ends, in one table.
#pragma once

#include <infiniband/verbs.h>

#include "base/log.hpp"
#include "soft/transport/broken.hpp"

namespace soft {

struct Ending {
    const char *text;  // the log line's text
    base::LogLevel level;
    ibv_wc_status oldest;  // the status of the oldest open operation; all later ones are flushed
    bool drain;            // the peer may still have to read
    bool is_of_link;       // only the bytes of the peer have ended, or the network failed
    int error;             // an errno value; 0 when either side ended it in order
};

[[nodiscard]] Ending ending_of(const Broken &broken);

}  // namespace soft
