// SPDX-License-Identifier: BSD-3-Clause
// registry/known_listener: whether an rsocket of this machine listens at an address.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

#include "registry/record.hpp"
#include "registry/tcp_diag.hpp"

namespace registry {

// Returns whether a connection to the address, which has a port, comes to a listening rsocket of this
// machine. The kernel says which socket of this network namespace would get it in TCP, and whose that is; a
// process of this user or of root has to list that very socket, or an rsocket that listens on the kernel's
// RDMA devices only, and is none in TCP, at the address. If no socket listens in TCP, the record of any user
// counts for the latter, because a TCP connection would be refused there. False also where the kernel does
// not answer. Sends nothing, and blocks only for reading files in memory.
[[nodiscard]] bool is_known_listener(const sockaddr_storage &address,
                                     const std::string &shared = shared_folder);

// Returns the socket of this machine and network namespace that would get a connection to the address in TCP;
// nothing where there is none, or the kernel does not answer. Sends nothing.
[[nodiscard]] std::optional<TcpSocket> listener_here(const sockaddr_storage &address);

}  // namespace registry
