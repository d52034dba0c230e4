// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram/socket: the UDP sockets of UD queue pairs and of the look-up of services. As with RoCE
// version 2, an address is a GID: an IPv6 address, or an IPv4 address mapped into one. All sockets are of
// both families, non-blocking and closed on exec.
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "soft/device/device.hpp"
#include "soft/ground/tcp.hpp"

namespace soft::udp {

[[nodiscard]] bool same(const ibv_gid &a, const ibv_gid &b);
[[nodiscard]] bool is_ipv4(const ibv_gid &gid);
[[nodiscard]] bool is_multicast(const ibv_gid &gid);
[[nodiscard]] bool is_unspecified(const ibv_gid &gid);

// Returns the GIDs of a device in the order of ibv_query_gid.
[[nodiscard]] std::vector<ibv_gid> gids_of(const Device &device);

// The destination or source of a datagram. `interface` is an index; it matters for link-local and multicast
// addresses.
struct Endpoint {
    ibv_gid gid{};
    std::uint16_t port = 0;
    std::uint32_t interface = 0;

    friend bool operator==(const Endpoint &a, const Endpoint &b) {
        return same(a.gid, b.gid) && a.port == b.port && a.interface == b.interface;
    }
};
[[nodiscard]] Endpoint endpoint_of(const sockaddr &address);
// Returns the address in the form that programs use; an IPv4 address is not mapped.
[[nodiscard]] tcp::Address address_of(const Endpoint &endpoint);

// Opens a queue pair's socket with any address and a free port. Its multicast messages leave by the interface
// and also reach this machine.
[[nodiscard]] base::Result<base::Fd> open(std::uint32_t interface);
// Opens a socket that is a member of one group on the interface. Any number of sockets in any number of
// processes may join.
[[nodiscard]] base::Result<base::Fd> join(const ibv_gid &group, std::uint32_t interface);
// Returns a socket that is bound to an address; port 0 takes a free one.
[[nodiscard]] base::Result<base::Fd> bound(const sockaddr &address, tcp::Options options);
// Connects the socket, so that it receives only from that peer. Fails with EHOSTUNREACH and the like.
[[nodiscard]] base::Result<void> connect(int socket, const Endpoint &to);
[[nodiscard]] Endpoint local_endpoint(int socket);

struct Arrival {
    std::size_t bytes = 0;
    Endpoint source;
    ibv_gid destination{};
};
// Returns the next datagram that fits; nothing when there is none. Datagrams that do not fit are dropped.
// `error` becomes the error that a connected socket got about its peer, or 0.
[[nodiscard]] std::optional<Arrival> receive(int socket, std::span<std::byte> buffer, int &error);

// Sends a datagram from the source address, unless that is unspecified. Returns 0 or an errno value.
[[nodiscard]] int send(int socket, const ibv_gid &source, const Endpoint &to, std::span<iovec> pieces);

}  // namespace soft::udp
