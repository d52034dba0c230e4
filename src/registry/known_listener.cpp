// SPDX-License-Identifier: BSD-3-Clause
// registry/known_listener: sock_diag(7) tells which socket listens, and the registry whether that is an
// rsocket.
#include "registry/known_listener.hpp"

#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/address.hpp"
#include "base/fd.hpp"
#include "registry/reader.hpp"

namespace registry {

namespace {

// The address that a connection to it goes to: a wildcard address is the loopback's.
sockaddr_storage destination(const sockaddr_storage &address) {
    sockaddr_storage to = base::without_mapping(address);
    if (base::is_wildcard(to)) {
        if (to.ss_family == AF_INET6) {
            reinterpret_cast<sockaddr_in6 &>(to).sin6_addr = in6addr_loopback;
        } else {
            reinterpret_cast<sockaddr_in &>(to).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        }
    }
    return to;
}

// A socket can be bound to this machine's addresses only. A wildcard listener here is none of another
// machine's.
bool is_local(sockaddr_storage address) {
    const base::Fd socket{::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    base::set_port(address, 0);
    return socket && bind(socket.get(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)) == 0;
}

bool is_listening(const Description &description) {
    return description.state == State::Listening && description.kind == Kind::Stream;
}

// Returns whether it listens on the kernel's RDMA devices only, and at the address. The socket that a device
// listens with in TCP, if it does, is the device's.
bool listens_by_rdma_to(const Description &description, const sockaddr_storage &wanted) {
    sockaddr_storage local{};
    std::memcpy(&local, &description.local, sizeof(description.local));
    local = base::without_mapping(local);
    return description.mode == Mode::Rdma && base::port_of(local) == base::port_of(wanted) &&
           (base::is_wildcard(local) || base::same_host(local, wanted));
}

}  // namespace

bool is_known_listener(const sockaddr_storage &address, const std::string &shared) {
    const sockaddr_storage wanted = destination(address);
    if ((wanted.ss_family != AF_INET && wanted.ss_family != AF_INET6) || !is_local(wanted)) {
        return false;
    }
    const auto in_tcp = tcp_socket_at(wanted);
    if (in_tcp ? !in_tcp->listens : in_tcp.error().number != ENOENT) {
        return false;
    }
    const std::vector<uid_t> believed = in_tcp ? std::vector<uid_t>{in_tcp->user, 0} : users_with_processes();
    bool is_known = false;
    read_all(shared, believed, [&](const Seen &seen) {
        is_known = is_listening(seen.description) &&
                   ((in_tcp && static_cast<std::uint32_t>(seen.description.inode) == in_tcp->inode) ||
                    listens_by_rdma_to(seen.description, wanted));
        return !is_known;
    });
    return is_known;
}

std::optional<TcpSocket> listener_here(const sockaddr_storage &address) {
    const sockaddr_storage wanted = destination(address);
    const auto found = is_local(wanted) ? tcp_socket_at(wanted) : base::failure(ENOENT);
    return found && found->listens ? std::optional{*found} : std::nullopt;
}

}  // namespace registry
