// SPDX-License-Identifier: BSD-3-Clause
// registry/known_listener: whether an rsocket of this machine listens at an address.
#pragma once

#include <sys/socket.h>

#include <string>

#include "registry/record.hpp"

namespace registry {

// Whether a TCP connection to the address, which has a port, comes to a listening rsocket of this machine and
// network namespace. The kernel says which socket would get it, and whose that is; a process of this user or
// of root has to list that very socket. False also where the kernel does not say it. Sends nothing, and
// blocks only for reading files in memory.
[[nodiscard]] bool is_known_listener(const sockaddr *address, socklen_t length,
                                     const std::string &path = folder);

}  // namespace registry
