// SPDX-License-Identifier: BSD-3-Clause
// rsocket/configuration: the settings of the system's administrator and of the environment, which a process
// reads once.
#pragma once

#include <chrono>
#include <string>

#include "base/interface_table.hpp"
#include "stream/connection.hpp"
#include "stream/looking.hpp"

namespace rsockets {

struct Configuration {
    // Says how long a call that blocks looks for work before it sleeps.
    std::chrono::microseconds polling_time{stream::Looking::usual_time};
    // RPMA_TLS is set: no message goes over plain UDP.
    bool tls = false;
    // RDMAV_FORK_SAFE is set: a forked child may use what its parent has accepted.
    bool fork_safe = false;
    // The devices of interfaces whose device is not chosen by address.
    base::InterfaceTable devices;
    // The settings that a new socket has.
    stream::Settings settings;
};

// Reads the files of a folder, and the variables of the environment, which count more. A file that is not
// there leaves the default; so does a value that is no such number, which is logged.
[[nodiscard]] Configuration read_configuration(const std::string &folder);

// The process's configuration, read when it is first asked for.
[[nodiscard]] const Configuration &configuration();

}  // namespace rsockets
