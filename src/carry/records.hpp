// SPDX-License-Identifier: BSD-3-Clause
// carry/records: what other programs see of this process's connections (`rpma sockets`). A connection has a
// record in the registry from the time on when its other end is looked for. Any number of threads may call.
#pragma once

#include "registry/record.hpp"

namespace carry {

class Socket;

namespace records {

// Has no effect on a connection that has a record.
void add(const Socket &socket, int fd);
// Says why the connection stays in TCP.
void tell(const Socket &socket, const char *reason);
void remove(const Socket &socket);
// Where the socket's counts are written; nullptr where it has no record. It stays mapped.
[[nodiscard]] registry::Live *of(const Socket &socket);

}  // namespace records

}  // namespace carry
