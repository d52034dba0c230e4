// SPDX-License-Identifier: BSD-3-Clause
// stream/address: socket addresses as devices know them, and as sockets of a family show them.
#include "stream/address.hpp"

#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fd.hpp"

namespace stream {

namespace {

constexpr std::size_t mapped_prefix = 12;  // bytes of an IPv6 address in front of the IPv4 one

const sockaddr_in &v4(const sockaddr_storage &address) {
    return reinterpret_cast<const sockaddr_in &>(address);
}
const sockaddr_in6 &v6(const sockaddr_storage &address) {
    return reinterpret_cast<const sockaddr_in6 &>(address);
}

}  // namespace

socklen_t length_of(const sockaddr_storage &address) {
    return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

base::Result<std::string> host_of(const sockaddr_storage &address) {
    std::array<char, NI_MAXHOST> host{};
    if (getnameinfo(reinterpret_cast<const sockaddr *>(&address), length_of(address), host.data(),
                    host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
        return base::failure(EAFNOSUPPORT);
    }
    return std::string{host.data()};
}

std::string port_text(const sockaddr_storage &address) {
    return std::to_string(ntohs(port_of(address)));
}

in_port_t port_of(const sockaddr_storage &address) {
    return address.ss_family == AF_INET6 ? v6(address).sin6_port : v4(address).sin_port;
}

void set_port(sockaddr_storage &address, in_port_t port) {
    if (address.ss_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6 &>(address).sin6_port = port;
    } else {
        reinterpret_cast<sockaddr_in &>(address).sin_port = port;
    }
}

bool is_wildcard(const sockaddr_storage &address) {
    return address.ss_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&v6(address).sin6_addr) != 0
                                         : v4(address).sin_addr.s_addr == htonl(INADDR_ANY);
}

sockaddr_storage without_mapping(const sockaddr_storage &address) {
    if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6(address).sin6_addr)) {
        return address;
    }
    sockaddr_storage plain{};
    auto &to = reinterpret_cast<sockaddr_in &>(plain);
    to.sin_family = AF_INET;
    to.sin_port = v6(address).sin6_port;
    std::memcpy(&to.sin_addr, &v6(address).sin6_addr.s6_addr[mapped_prefix], sizeof(to.sin_addr));
    return plain;
}

sockaddr_storage as_seen_by(int family, const sockaddr_storage &address) {
    if (family != AF_INET6 || address.ss_family != AF_INET) {
        return address;
    }
    sockaddr_storage mapped{};
    auto &to = reinterpret_cast<sockaddr_in6 &>(mapped);
    to.sin6_family = AF_INET6;
    to.sin6_port = v4(address).sin_port;
    std::memset(&to.sin6_addr.s6_addr[mapped_prefix - 2], 0xff, 2);
    std::memcpy(&to.sin6_addr.s6_addr[mapped_prefix], &v4(address).sin_addr, sizeof(v4(address).sin_addr));
    return mapped;
}

// Connecting a datagram socket looks its route up and does nothing else.
base::Result<sockaddr_storage> source_to(const sockaddr_storage &remote) {
    const base::Fd socket{::socket(remote.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    if (!socket ||
        ::connect(socket.get(), reinterpret_cast<const sockaddr *>(&remote), length_of(remote)) != 0) {
        return base::last_failure();
    }
    return name_of(socket.get());
}

base::Result<sockaddr_storage> name_of(int socket) {
    sockaddr_storage name{};
    socklen_t length = sizeof(name);
    if (getsockname(socket, reinterpret_cast<sockaddr *>(&name), &length) != 0) {
        return base::last_failure();
    }
    return name;
}

}  // namespace stream
