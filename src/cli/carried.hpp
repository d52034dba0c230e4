// SPDX-License-Identifier: BSD-3-Clause
// cli/carried: which way the bytes of a program under `rpma run --sockets` would go.
#pragma once

#include <sys/socket.h>

#include <string>

namespace cli {

// Returns the kind of the device that carries the bytes of the program's connections to the hosts of
// /etc/rdma/rsocket/peers, with this value of --device; empty for none.
[[nodiscard]] std::string device_for_hosts(const std::string &device);

// Returns, as a text, which way the bytes of a connection of this user's to the server would go, and why.
// Looks at the processes of this machine, and sends nothing.
[[nodiscard]] std::string carried_to(const sockaddr_storage &server);

}  // namespace cli
