// SPDX-License-Identifier: BSD-3-Clause
// base/address: addresses of IPv4 and IPv6, as sockets have them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace base {

// Whether two addresses are the same, whatever their ports. Addresses of other families never are.
[[nodiscard]] inline bool same_host(const sockaddr &one, const sockaddr &other) {
    if (one.sa_family != other.sa_family) {
        return false;
    }
    if (one.sa_family == AF_INET6) {
        return std::memcmp(&reinterpret_cast<const sockaddr_in6 &>(one).sin6_addr,
                           &reinterpret_cast<const sockaddr_in6 &>(other).sin6_addr, sizeof(in6_addr)) == 0;
    }
    return one.sa_family == AF_INET && reinterpret_cast<const sockaddr_in &>(one).sin_addr.s_addr ==
                                           reinterpret_cast<const sockaddr_in &>(other).sin_addr.s_addr;
}

}  // namespace base
