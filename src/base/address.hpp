// SPDX-License-Identifier: BSD-3-Clause
// base/address: addresses of IPv4 and IPv6, as sockets have them. The functions look at the family AF_INET6,
// and take an address of any other family as one of IPv4.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace base {

[[nodiscard]] inline socklen_t length_of(const sockaddr &address) {
    return address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}
[[nodiscard]] inline socklen_t length_of(const sockaddr_storage &address) {
    return length_of(reinterpret_cast<const sockaddr &>(address));
}

// Returns the port, in the host's order.
[[nodiscard]] inline std::uint16_t port_of(const sockaddr_storage &address) {
    return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6 &>(address).sin6_port
                                               : reinterpret_cast<const sockaddr_in &>(address).sin_port);
}
inline void set_port(sockaddr_storage &address, std::uint16_t port) {
    (address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 &>(address).sin6_port
                                   : reinterpret_cast<sockaddr_in &>(address).sin_port) = htons(port);
}

// One end of a connection, whose address a caller asks for.
enum class End { Local, Peer };

[[nodiscard]] inline bool is_wildcard(const sockaddr_storage &address) {
    return address.ss_family == AF_INET6
               ? IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr) != 0
               : reinterpret_cast<const sockaddr_in &>(address).sin_addr.s_addr == htonl(INADDR_ANY);
}

// Returns an IPv4 address that is mapped into an IPv6 one (RFC 4291) as the IPv4 address that devices know,
// and any other address as it is.
[[nodiscard]] inline sockaddr_storage without_mapping(const sockaddr_storage &address) {
    constexpr std::size_t prefix_bytes = 12;
    const auto &mapped = reinterpret_cast<const sockaddr_in6 &>(address);
    if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&mapped.sin6_addr)) {
        return address;
    }
    sockaddr_storage plain{};
    auto &v4 = reinterpret_cast<sockaddr_in &>(plain);
    v4.sin_family = AF_INET;
    v4.sin_port = mapped.sin6_port;
    std::memcpy(&v4.sin_addr, &mapped.sin6_addr.s6_addr[prefix_bytes], sizeof(v4.sin_addr));
    return plain;
}

// Returns whether two addresses are the same, whatever their ports. Addresses of other families never are.
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

[[nodiscard]] inline bool same_host(const sockaddr_storage &one, const sockaddr_storage &other) {
    return same_host(reinterpret_cast<const sockaddr &>(one), reinterpret_cast<const sockaddr &>(other));
}

}  // namespace base
