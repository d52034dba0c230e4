// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram/socket: on Linux IPv6 sockets also carry IPv4, also multicast, with mapped
// addresses.
#include "soft/datagram/socket.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error_text.hpp"
#include "base/log.hpp"
#include "base/parts.hpp"
#include "soft/ground/limits.hpp"

namespace soft::udp {

namespace {

constexpr std::array<std::uint8_t, 12> ipv4_prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::size_t ipv4_offset = ipv4_prefix.size();
constexpr std::uint8_t ipv4_multicast = 0xe0;  // the first four bits
constexpr std::uint8_t ipv6_multicast = 0xff;

template <typename T>
bool set(int socket, int level, int option, T value) {
    return setsockopt(socket, level, option, &value, sizeof(value)) == 0;
}

sockaddr_in6 raw(const Endpoint &endpoint) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(endpoint.port);
    std::memcpy(&address.sin6_addr, endpoint.gid.raw, sizeof(endpoint.gid));
    const bool scoped =
        IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr) || IN6_IS_ADDR_MULTICAST(&address.sin6_addr);
    address.sin6_scope_id = scoped ? endpoint.interface : 0;
    return address;
}

in_addr ipv4_part(const ibv_gid &gid) {
    in_addr address{};
    std::memcpy(&address, gid.raw + ipv4_offset, sizeof(address));
    return address;
}

base::Result<base::Fd> fresh(bool only_ipv6) {
    base::Fd socket{::socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!socket || !set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, only_ipv6 ? 1 : 0) ||
        !set(socket.get(), IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)) {
        const int error = errno;
        BASE_LOG(Error, "no UDP socket of both IP families: %s", base::error_text(error));
        return base::failure(error);
    }
    // The buffer is as large as the kernel allows, because a program that does not poll at once loses
    // messages when it is full.
    (void)set(socket.get(), SOL_SOCKET, SO_RCVBUF, limits::datagram_buffer_bytes);
    return socket;
}

base::Result<void> bind_to(int socket, const Endpoint &endpoint) {
    const sockaddr_in6 address = raw(endpoint);
    if (bind(socket, reinterpret_cast<const sockaddr *>(&address), sizeof(address)) != 0) {
        return base::last_failure();
    }
    return {};
}

}  // namespace

bool same(const ibv_gid &a, const ibv_gid &b) {
    return std::memcmp(a.raw, b.raw, sizeof(a.raw)) == 0;
}

bool is_ipv4(const ibv_gid &gid) {
    return std::equal(ipv4_prefix.begin(), ipv4_prefix.end(), gid.raw);
}

bool is_multicast(const ibv_gid &gid) {
    return is_ipv4(gid) ? (gid.raw[ipv4_offset] & 0xf0) == ipv4_multicast : gid.raw[0] == ipv6_multicast;
}

bool is_unspecified(const ibv_gid &gid) {
    return is_ipv4(gid) ? ipv4_part(gid).s_addr == INADDR_ANY : same(gid, ibv_gid{});
}

std::vector<ibv_gid> gids_of(const Device &device) {
    std::vector<ibv_gid> gids;
    for (const GidRow &row : soft::gids_of(device)) {
        gids.push_back(row.gid);
    }
    return gids;
}

Endpoint endpoint_of(const sockaddr &address) {
    Endpoint endpoint{.gid = gid_of(address)};
    if (address.sa_family == AF_INET6) {
        const auto &v6 = reinterpret_cast<const sockaddr_in6 &>(address);
        endpoint.port = ntohs(v6.sin6_port);
        endpoint.interface = v6.sin6_scope_id;
    } else {
        endpoint.port = ntohs(reinterpret_cast<const sockaddr_in &>(address).sin_port);
    }
    return endpoint;
}

tcp::Address address_of(const Endpoint &endpoint) {
    tcp::Address address{};
    if (is_ipv4(endpoint.gid)) {
        auto &v4 = reinterpret_cast<sockaddr_in &>(address);
        v4.sin_family = AF_INET;
        v4.sin_port = htons(endpoint.port);
        v4.sin_addr = ipv4_part(endpoint.gid);
    } else {
        const sockaddr_in6 v6 = raw(endpoint);
        std::memcpy(&address, &v6, sizeof(v6));
    }
    return address;
}

base::Result<base::Fd> open(std::uint32_t interface) {
    auto socket = fresh(false);
    if (!socket) {
        return socket;
    }
    const int fd = socket->get();
    const int index = static_cast<int>(interface);
    if (!set(fd, IPPROTO_IP, IP_MULTICAST_IF,
             ip_mreqn{.imr_multiaddr = {}, .imr_address = {}, .imr_ifindex = index}) ||
        !set(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, index) || !set(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 1) ||
        !set(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1) ||
        !set(fd, IPPROTO_IP, IP_MULTICAST_TTL, limits::multicast_hops) ||
        !set(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, limits::multicast_hops)) {
        return base::last_failure();
    }
    if (const auto done = bind_to(fd, {}); !done) {
        return std::unexpected{done.error()};
    }
    return socket;
}

base::Result<base::Fd> join(const ibv_gid &group, std::uint32_t interface) {
    auto socket = fresh(false);
    if (!socket) {
        return socket;
    }
    const int fd = socket->get();
    const int index = static_cast<int>(interface);
    if (!set(fd, SOL_SOCKET, SO_REUSEADDR, 1)) {
        return base::last_failure();
    }
    if (const auto done = bind_to(fd, {.gid = group, .port = limits::multicast_port, .interface = interface});
        !done) {
        return std::unexpected{done.error()};
    }
    bool joined = false;
    if (is_ipv4(group)) {
        // With 0 the socket does not get messages of groups that other sockets of this machine have joined.
        joined = set(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0) &&
                 set(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP,
                     ip_mreqn{.imr_multiaddr = ipv4_part(group), .imr_address = {}, .imr_ifindex = index});
    } else {
        ipv6_mreq request{.ipv6mr_multiaddr = {}, .ipv6mr_interface = interface};
        std::memcpy(&request.ipv6mr_multiaddr, group.raw, sizeof(group));
        joined = set(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0) &&
                 set(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, request);
    }
    if (!joined) {
        return base::last_failure();
    }
    return socket;
}

base::Result<base::Fd> bound(const sockaddr &address, tcp::Options options) {
    auto socket = fresh(options.v6_only.value_or(false) && address.sa_family == AF_INET6);
    if (!socket) {
        return socket;
    }
    if (options.reuse_address) {
        (void)set(socket->get(), SOL_SOCKET, SO_REUSEADDR, 1);
    }
    if (options.service_type) {
        tcp::set_service_type(socket->get(), *options.service_type);
    }
    if (const auto done = bind_to(socket->get(), endpoint_of(address)); !done) {
        return std::unexpected{done.error()};
    }
    return socket;
}

base::Result<void> connect(int socket, const Endpoint &to) {
    const sockaddr_in6 address = raw(to);
    if (::connect(socket, reinterpret_cast<const sockaddr *>(&address), sizeof(address)) != 0) {
        return base::last_failure();
    }
    return {};
}

Endpoint local_endpoint(int socket) {
    const tcp::Address address = tcp::local_address(socket);
    return endpoint_of(reinterpret_cast<const sockaddr &>(address));
}

std::optional<Arrival> receive(int socket, std::span<std::byte> buffer, int &error) {
    error = 0;
    for (int tries = 0; tries < limits::datagrams_in_a_turn; ++tries) {
        sockaddr_in6 from{};
        const iovec piece = base::part_of(buffer.data(), buffer.size());
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(in6_pktinfo))> control;
        msghdr message = base::message_of(&piece, 1);
        message.msg_name = &from;
        message.msg_namelen = sizeof(from);
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        const ssize_t bytes = recvmsg(socket, &message, 0);
        if (bytes < 0) {
            error = errno == EAGAIN || errno == EINTR ? 0 : errno;
            return std::nullopt;
        }
        const cmsghdr *const header = CMSG_FIRSTHDR(&message);
        if ((message.msg_flags & MSG_TRUNC) != 0 || header == nullptr || header->cmsg_level != IPPROTO_IPV6 ||
            header->cmsg_type != IPV6_PKTINFO) {
            continue;
        }
        in6_pktinfo info{};
        std::memcpy(&info, CMSG_DATA(header), sizeof(info));
        Arrival arrival{.bytes = static_cast<std::size_t>(bytes),
                        .source = endpoint_of(reinterpret_cast<const sockaddr &>(from))};
        std::memcpy(arrival.destination.raw, &info.ipi6_addr, sizeof(arrival.destination));
        return arrival;
    }
    return std::nullopt;
}

int send(int socket, const ibv_gid &source, const Endpoint &to, std::span<iovec> pieces) {
    sockaddr_in6 address = raw(to);
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(in6_pktinfo))> control{};
    msghdr message = base::message_of(pieces.data(), pieces.size());
    message.msg_name = &address;
    message.msg_namelen = sizeof(address);
    if (!is_unspecified(source)) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr *const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = IPPROTO_IPV6;
        header->cmsg_type = IPV6_PKTINFO;
        header->cmsg_len = CMSG_LEN(sizeof(in6_pktinfo));
        in6_pktinfo info{};
        std::memcpy(&info.ipi6_addr, source.raw, sizeof(source));
        std::memcpy(CMSG_DATA(header), &info, sizeof(info));
    }
    while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
        if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

}  // namespace soft::udp
