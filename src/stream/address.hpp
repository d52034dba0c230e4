// SPDX-License-Identifier: BSD-3-Clause
// stream/address: socket addresses as devices know them, and as sockets of a family show them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "base/result.hpp"

namespace stream {

// Returns an address, and its port, in digits, as librpma takes them. EAFNOSUPPORT: it is neither IPv4 nor
// IPv6.
[[nodiscard]] base::Result<std::string> host_of(const sockaddr_storage &address);
[[nodiscard]] std::string port_text(const sockaddr_storage &address);
// Returns the address as a socket of the family shows it.
[[nodiscard]] sockaddr_storage as_seen_by(int family, const sockaddr_storage &address);

// Returns the address of this machine at which the route to another begins, and sends nothing. ENETUNREACH,
// EHOSTUNREACH: there is no route.
[[nodiscard]] base::Result<sockaddr_storage> source_to(const sockaddr_storage &remote);

// Returns the local address of a socket of the kernel.
[[nodiscard]] base::Result<sockaddr_storage> name_of(int socket);

}  // namespace stream
