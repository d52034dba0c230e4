// SPDX-License-Identifier: BSD-3-Clause
// cli/carried: which way the bytes of a program under `rpma run --sockets` would go.
#pragma once

#include <sys/socket.h>

#include <string>

namespace cli {

// Returns whether the program's connections are TCP and memory, and not rsockets, with this value of
// --device; empty for none. RPMA_DEVICE, RPMA_TLS and the kernel's RDMA devices decide it otherwise.
[[nodiscard]] bool goes_by_memory(const std::string &device);

// Returns, as a text, which way the bytes of a connection of this user's to the server would go, and why.
// Looks at the processes of this machine, and sends nothing.
[[nodiscard]] std::string carried_to(const sockaddr_storage &server);

}  // namespace cli
