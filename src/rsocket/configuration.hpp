// SPDX-License-Identifier: BSD-3-Clause
// rsocket/configuration: the settings of the system's administrator and of the environment, which a process
// reads once.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/interface_table.hpp"
#include "base/network.hpp"
#include "stream/connection.hpp"
#include "stream/looking.hpp"

namespace rsockets {

// The servers that rconnect asks for RDMA. Only: all of them, and no connection falls back to TCP.
enum class Probe { Never, Known, Always, Only };

struct Configuration {
    // Says how long a call that blocks looks for work before it sleeps.
    std::chrono::microseconds polling_time{stream::Looking::usual_time};
    Probe probe = Probe::Always;
    // RPMA_TLS is set: no byte goes over plain TCP or UDP.
    bool tls = false;
    // Where rsockets are known to listen.
    std::vector<base::Network> peers;
    // Says how long a server that speaks first waits for the request of a peer that has said nothing
    // (probe.hpp).
    std::chrono::milliseconds grace{10};
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
