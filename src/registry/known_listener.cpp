// SPDX-License-Identifier: BSD-3-Clause
// registry/known_listener: sock_diag(7) tells which socket listens, and the registry whether that is an
// rsocket.
#include "registry/known_listener.hpp"

#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/address.hpp"
#include "base/fd.hpp"
#include "registry/reader.hpp"
#include "registry/tcp_diag.hpp"

namespace registry {

namespace {

// The IPv4 address of a mapped one.
std::optional<sockaddr_storage> without_mapping(const sockaddr *address, socklen_t length) {
    sockaddr_storage copy{};
    if (length > sizeof(copy) || length < sizeof(sockaddr_in)) {
        return std::nullopt;
    }
    std::memcpy(&copy, address, length);
    if (copy.ss_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
        const auto v6 = reinterpret_cast<const sockaddr_in6 &>(copy);
        if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
            sockaddr_in v4{.sin_family = AF_INET, .sin_port = v6.sin6_port, .sin_addr = {}, .sin_zero = {}};
            std::memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
            copy = {};
            std::memcpy(&copy, &v4, sizeof(v4));
        }
    }
    return copy.ss_family == AF_INET || (copy.ss_family == AF_INET6 && length >= sizeof(sockaddr_in6))
               ? std::optional{copy}
               : std::nullopt;
}

bool is_wildcard(const sockaddr_storage &address) {
    return address.ss_family == AF_INET
               ? reinterpret_cast<const sockaddr_in &>(address).sin_addr.s_addr == htonl(INADDR_ANY)
               : IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr);
}

in_port_t port_of(const sockaddr_storage &address) {
    return address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in &>(address).sin_port
                                        : reinterpret_cast<const sockaddr_in6 &>(address).sin6_port;
}

// The address that a connection to it goes to: a wildcard address is the loopback's.
std::optional<sockaddr_storage> destination(const sockaddr *address, socklen_t length) {
    auto copy = without_mapping(address, length);
    if (copy && is_wildcard(*copy)) {
        if (copy->ss_family == AF_INET) {
            reinterpret_cast<sockaddr_in &>(*copy).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        } else {
            reinterpret_cast<sockaddr_in6 &>(*copy).sin6_addr = in6addr_loopback;
        }
    }
    return copy;
}

// A socket can be bound to this machine's addresses only. A wildcard listener here is none of another
// machine's.
bool is_local(sockaddr_storage address) {
    const base::Fd socket{::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    (address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in &>(address).sin_port
                                  : reinterpret_cast<sockaddr_in6 &>(address).sin6_port) = 0;
    return socket && bind(socket.get(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)) == 0;
}

bool is_listening(const Description &description) {
    return description.state == State::Listening && description.kind == Kind::Stream;
}

// Whether it listens on the kernel's RDMA devices only, and at the address. The socket that a device listens
// with in TCP, if it does, is the device's.
bool listens_by_rdma_to(const Description &description, const sockaddr_storage &wanted) {
    const auto local =
        without_mapping(reinterpret_cast<const sockaddr *>(&description.local), sizeof(description.local));
    return description.mode == Mode::Rdma && local && port_of(*local) == port_of(wanted) &&
           (is_wildcard(*local) || base::same_host(reinterpret_cast<const sockaddr &>(*local),
                                                   reinterpret_cast<const sockaddr &>(wanted)));
}

}  // namespace

bool is_known_listener(const sockaddr *address, socklen_t length, const std::string &path) {
    const auto wanted = destination(address, length);
    if (!wanted || !is_local(*wanted)) {
        return false;
    }
    const auto in_tcp = tcp_socket_at(*wanted, {});
    if (in_tcp ? !in_tcp->listens : in_tcp.error().number != ENOENT) {
        return false;
    }
    const auto is_believed = [&](uid_t user) { return !in_tcp || user == in_tcp->user || user == 0; };
    bool is_known = false;
    read_all(path, is_believed, [&](const Seen &seen) {
        is_known = is_listening(seen.description) &&
                   ((in_tcp && static_cast<std::uint32_t>(seen.description.inode) == in_tcp->inode) ||
                    listens_by_rdma_to(seen.description, *wanted));
        return !is_known;
    });
    return is_known;
}

}  // namespace registry
