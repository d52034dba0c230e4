// SPDX-License-Identifier: BSD-3-Clause
#include "soft/ground/tcp.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/address.hpp"
#include "base/multipath.hpp"
#include "soft/ground/limits.hpp"

namespace soft::tcp {

namespace {

constexpr int keep_alive_idle_s = 10;
constexpr int keep_alive_interval_s = 5;
constexpr int keep_alive_probes = 4;
// An idle path of MPTCP that is silent for some minutes may come back; the kernel does not replace one that
// it has given up. MultipathLink looks whether all paths are silent.
constexpr int most_keep_alive_probes = 127;

template <typename T>
void set(int socket, int level, int option, T value) {
    (void)setsockopt(socket, level, option, &value, sizeof(value));
}

base::Result<base::Fd> plain_socket(int family, int flags) {
    base::Fd socket{::socket(family, SOCK_STREAM | flags, 0)};
    return socket ? base::Result<base::Fd>{std::move(socket)} : base::last_failure();
}

base::Result<base::Fd> stream_socket(int family, const Options &options) {
    constexpr int flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
    auto socket = options.within_host ? plain_socket(family, flags) : base::stream_socket(family, flags);
    if (socket && options.service_type) {
        set_service_type(socket->get(), *options.service_type);
    }
    return socket;
}

Address without_port(Address address) {
    if (address.ss_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6 &>(address).sin6_port = 0;
    } else {
        reinterpret_cast<sockaddr_in &>(address).sin_port = 0;
    }
    return address;
}

using NameFunction = int (*)(int, sockaddr *, socklen_t *);
Address name_of(int socket, NameFunction name) {
    Address address{};
    socklen_t length = sizeof(address);
    (void)name(socket, reinterpret_cast<sockaddr *>(&address), &length);
    return copy_of(reinterpret_cast<const sockaddr &>(address));
}

}  // namespace

Address copy_of(const sockaddr &address) {
    Address copy{};
    std::memcpy(&copy, &address, base::length_of(address));
    return base::without_mapping(copy);
}

Text text_of(const Address &address) {
    std::array<char, INET6_ADDRSTRLEN> host{};
    Text text;
    auto &to = text.characters_;
    if (address.ss_family == AF_INET6) {
        const auto &v6 = reinterpret_cast<const sockaddr_in6 &>(address);
        inet_ntop(AF_INET6, &v6.sin6_addr, host.data(), host.size());
        (void)std::snprintf(to.data(), to.size(), "[%s]:%u", host.data(), unsigned{ntohs(v6.sin6_port)});
    } else {
        const auto &v4 = reinterpret_cast<const sockaddr_in &>(address);
        inet_ntop(AF_INET, &v4.sin_addr, host.data(), host.size());
        (void)std::snprintf(to.data(), to.size(), "%s:%u", host.data(), unsigned{ntohs(v4.sin_port)});
    }
    return text;
}

Address local_address(int socket) {
    return name_of(socket, getsockname);
}
Address peer_address(int socket) {
    return name_of(socket, getpeername);
}

// A socket for IPv6 gets both options, because it may carry IPv4. The kernel ignores the two bits of ECN.
void set_service_type(int socket, std::uint8_t service_type) {
    set(socket, IPPROTO_IP, IP_TOS, int{service_type});
    set(socket, IPPROTO_IPV6, IPV6_TCLASS, int{service_type});
}

base::Result<base::Fd> bound(const sockaddr &address, const Options &options) {
    auto made = stream_socket(address.sa_family, options);
    if (!made) {
        return made;
    }
    const base::Fd &socket = *made;
    if (options.reuse_address) {
        set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    }
    if (options.v6_only && address.sa_family == AF_INET6) {
        set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, *options.v6_only ? 1 : 0);
    }
    if (options.port_when_connected) {
        // The port then has to be free for this peer alone. A port that bind() takes is taken for all, until
        // a minute after the connection.
        set(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    }
    if (::bind(socket.get(), &address, base::length_of(address)) != 0) {
        // The port is in use, or only closed connections of an earlier listener have it (see listen()). Those
        // do not count; a socket that listens, or is bound without SO_REUSEADDR, still does.
        if (errno != EADDRINUSE || options.reuse_address) {
            return base::last_failure();
        }
        set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
        if (::bind(socket.get(), &address, base::length_of(address)) != 0) {
            return base::last_failure();
        }
        set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 0);
    }
    return made;
}

base::Result<void> listen(int socket, int backlog) {
    // The connections inherit it, so that a server which ends them first can start again on its port at once.
    // Before the socket listens it would let another user's socket take the port. Only a port that closed
    // connections of an earlier listener have needs it then. A connection that comes between these two calls
    // does not inherit it.
    const bool listens = ::listen(socket, backlog) == 0;
    if (!listens && errno != EADDRINUSE) {
        return base::last_failure();
    }
    set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (!listens && ::listen(socket, backlog) != 0) {
        return base::last_failure();
    }
    return {};
}

// The address comes with the call, because the kernel no longer knows it for a connection that its peer has
// reset.
base::Result<AcceptedSocket> accept(int socket) {
    Address address{};
    socklen_t length = sizeof(address);
    base::Fd connection{
        accept4(socket, reinterpret_cast<sockaddr *>(&address), &length, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!connection) {
        return base::last_failure();
    }
    set_connection_options(connection.get());
    return AcceptedSocket{.socket = std::move(connection),
                          .peer = copy_of(reinterpret_cast<const sockaddr &>(address))};
}

base::Result<base::Fd> adopted(int fd, bool borrow) {
    int type = 0;
    socklen_t length = sizeof(type);
    const Address peer = peer_address(fd);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM ||
        (peer.ss_family != AF_INET && peer.ss_family != AF_INET6)) {
        return base::failure(EINVAL);
    }
    base::Fd connection = borrow ? base::Fd::borrowed(fd) : base::Fd{fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    if (!connection || fcntl(connection.get(), F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
        return base::last_failure();
    }
    set_connection_options(connection.get());
    return connection;
}

base::Result<base::Fd> connect(base::Fd bound_socket, const sockaddr &to, const Options &options) {
    base::Result<base::Fd> made{std::move(bound_socket)};
    if (!*made) {
        made = stream_socket(to.sa_family, options);
        if (!made) {
            return made;
        }
    }
    const base::Fd &socket = *made;
    set_connection_options(socket.get());
    // The kernel holds back the packet that completes the connection until the request goes with it. So a
    // server that accepts has the request.
    set(socket.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, 1);
    // EISCONN says that the program had connected the socket before the device adopted it.
    if (::connect(socket.get(), &to, base::length_of(to)) != 0 && errno != EINPROGRESS && errno != EISCONN) {
        return base::last_failure();
    }
    return made;
}

// Connecting a datagram socket asks the routing table and sends nothing.
base::Result<Address> source_towards(const sockaddr &to, const Address *from) {
    const base::Fd socket{::socket(to.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    if (!socket) {
        return base::last_failure();
    }
    if (from != nullptr) {
        const Address any_port = without_port(*from);
        const auto &here = reinterpret_cast<const sockaddr &>(any_port);
        if (::bind(socket.get(), &here, base::length_of(here)) != 0) {
            return base::last_failure();
        }
    }
    if (::connect(socket.get(), &to, base::length_of(to)) != 0) {
        return base::last_failure();
    }
    return without_port(local_address(socket.get()));
}

void set_connection_options(int socket) {
    set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(socket, IPPROTO_TCP, TCP_KEEPIDLE, keep_alive_idle_s);
    set(socket, IPPROTO_TCP, TCP_KEEPINTVL, keep_alive_interval_s);
    if (base::is_multipath(socket)) {
        set(socket, IPPROTO_TCP, TCP_KEEPCNT, most_keep_alive_probes);
        return;
    }
    set(socket, IPPROTO_TCP, TCP_KEEPCNT, keep_alive_probes);
    set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
        static_cast<unsigned>(std::chrono::milliseconds{limits::silence_timeout}.count()));
}

}  // namespace soft::tcp
