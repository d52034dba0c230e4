// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram/socket: the UDP sockets of UD queue pairs and of the look-up of services. An address is a GID
// as RoCE version 2 has them: an IPv6 address, or an IPv4 address mapped into one. All sockets are of both
// families, non-blocking and closed on exec.
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

// The GIDs of a device in the order of ibv_query_gid.
[[nodiscard]] std::vector<ibv_gid> gids_of(const Device &device);

// Where datagrams go to or come from. `interface` is an index; it matters for link-local and multicast ones.
struct Endpoint {
    ibv_gid gid{};
    std::uint16_t port = 0;
    std::uint32_t interface = 0;

    friend bool operator==(const Endpoint &a, const Endpoint &b) {
        return same(a.gid, b.gid) && a.port == b.port && a.interface == b.interface;
    }
};
[[nodiscard]] Endpoint endpoint_of(const sockaddr &address);
// As programs know it: of IPv4 when it is that.
[[nodiscard]] tcp::Address address_of(const Endpoint &endpoint);

// A queue pair's socket: any address, a free port; multicast leaves by the interface and comes back.
[[nodiscard]] base::Result<base::Fd> open(std::uint32_t interface);
// A member of a group on the interface, and of nothing else; any number of them in any number of processes.
[[nodiscard]] base::Result<base::Fd> join(const ibv_gid &group, std::uint32_t interface);
// Bound to an address; port 0 takes a free one.
[[nodiscard]] base::Result<base::Fd> bound(const sockaddr &address, tcp::Options options);
// From here on nothing comes but from there; EHOSTUNREACH and the like.
[[nodiscard]] base::Result<void> connect(int socket, const Endpoint &to);
[[nodiscard]] Endpoint local_endpoint(int socket);

struct Arrival {
    std::size_t bytes = 0;
    Endpoint source;
    ibv_gid destination{};
};
// The next datagram that fits; nothing when there is none. Those that do not fit are dropped. `error` is what
// a connected socket was told of its peer, or 0.
[[nodiscard]] std::optional<Arrival> receive(int socket, std::span<std::byte> buffer, int &error);

// Returns 0 or an errno value. From that source, unless it is unspecified.
[[nodiscard]] int send(int socket, const ibv_gid &source, const Endpoint &to, std::span<iovec> pieces);

}  // namespace soft::udp
