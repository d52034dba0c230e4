// SPDX-License-Identifier: BSD-3-Clause
// registry/tcp_diag: the facts that the kernel tells every user about a TCP socket (sock_diag(7)), as ss(8)
// shows them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <map>

#include "base/result.hpp"

namespace registry {

struct TcpSocket {
    uid_t user = 0;
    std::uint32_t inode = 0;
    bool listens = false;
};

// Asks for the socket of this network namespace that a segment of a new client comes to, by the kernel's own
// look-up. Does not block.
// ENOENT: there is none. Others: the kernel cannot be asked.
[[nodiscard]] base::Result<TcpSocket> tcp_socket_at(const sockaddr_storage &local);

// Returns how many paths each connection of MPTCP in this network namespace has, by the inode of its socket.
// Empty when the kernel cannot be asked. Throws std::bad_alloc.
[[nodiscard]] std::map<std::uint32_t, unsigned> multipath_connections();

}  // namespace registry
