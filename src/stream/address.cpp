// SPDX-License-Identifier: BSD-3-Clause
// stream/address: socket addresses as devices know them, and as sockets of a family show them.
#include "stream/address.hpp"

#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/address.hpp"
#include "base/fd.hpp"

namespace stream {

base::Result<std::string> host_of(const sockaddr_storage &address) {
    std::array<char, NI_MAXHOST> host{};
    if (getnameinfo(reinterpret_cast<const sockaddr *>(&address), base::length_of(address), host.data(),
                    host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
        return base::failure(EAFNOSUPPORT);
    }
    return std::string{host.data()};
}

std::string port_text(const sockaddr_storage &address) {
    return std::to_string(base::port_of(address));
}

sockaddr_storage as_seen_by(int family, const sockaddr_storage &address) {
    if (family != AF_INET6 || address.ss_family != AF_INET) {
        return address;
    }
    constexpr std::size_t prefix_bytes = 12;  // of an IPv6 address, in front of the IPv4 one
    const auto &v4 = reinterpret_cast<const sockaddr_in &>(address);
    sockaddr_storage mapped{};
    auto &to = reinterpret_cast<sockaddr_in6 &>(mapped);
    to.sin6_family = AF_INET6;
    to.sin6_port = v4.sin_port;
    std::memset(&to.sin6_addr.s6_addr[prefix_bytes - 2], 0xff, 2);
    std::memcpy(&to.sin6_addr.s6_addr[prefix_bytes], &v4.sin_addr, sizeof(v4.sin_addr));
    return mapped;
}

// Connecting a datagram socket looks its route up and does nothing else.
base::Result<sockaddr_storage> source_to(const sockaddr_storage &remote) {
    const base::Fd socket{::socket(remote.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    if (!socket ||
        ::connect(socket.get(), reinterpret_cast<const sockaddr *>(&remote), base::length_of(remote)) != 0) {
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
