// SPDX-License-Identifier: BSD-3-Clause
// rsocket/configuration: what the files of the system's administrator say, read once a process.
#pragma once

#include <chrono>

#include "stream/connection.hpp"

namespace rsockets {

struct Configuration {
    // How long a call that blocks looks before it sleeps.
    std::chrono::microseconds polling_time{10};
    // A socket begins with these.
    stream::Settings settings;
};

// Read when it is first asked for. A file that is not there leaves the default; so does one with a value that
// is none, which is logged.
[[nodiscard]] const Configuration &configuration();

}  // namespace rsockets
