// SPDX-License-Identifier: BSD-3-Clause
// datagram/udp: datagrams of a UDP socket that does not block.
#include "datagram/udp.hpp"

#include <cerrno>

#include "base/fd.hpp"
#include "base/parts.hpp"

namespace datagram::udp {

namespace {

template <typename T>
T data_of(const cmsghdr &header) {
    T data;
    std::memcpy(&data, CMSG_DATA(&header), sizeof(data));
    return data;
}

void note_destination(msghdr &message, Arrival &arrival) {
    for (cmsghdr *header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO) {
            const auto info = data_of<in_pktinfo>(*header);
            arrival.to = Ip::of_v4(info.ipi_spec_dst);
            arrival.unicast = info.ipi_addr.s_addr == info.ipi_spec_dst.s_addr;
        } else if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_PKTINFO) {
            arrival.to = Ip::of_v6(data_of<in6_pktinfo>(*header).ipi6_addr);
            arrival.unicast = !arrival.to.is_multicast();
        }
    }
}

}  // namespace

base::Result<void> prepare(int socket, int family) {
    const int on = 1;
    const int result = family == AF_INET
                           ? setsockopt(socket, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on))
                           : setsockopt(socket, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
    return result == 0 ? base::Result<void>{} : base::last_failure();
}

base::Result<Arrival> receive(int socket, std::span<std::byte> buffer) {
    alignas(cmsghdr) char control[256];
    AnyAddress name{};
    const iovec part = base::part_of(buffer.data(), buffer.size());
    msghdr message = base::message_of(&part, 1);
    message.msg_name = &name;
    message.msg_namelen = sizeof(name);
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t bytes = recvmsg(socket, &message, MSG_DONTWAIT | MSG_TRUNC);
    if (bytes < 0) {
        return base::last_failure();
    }
    Arrival arrival{.bytes = static_cast<std::size_t>(bytes)};
    arrival.from = address_of(&name, message.msg_namelen).value_or(Address{});
    note_destination(message, arrival);
    return arrival;
}

base::Result<void> send(int socket, std::span<const std::byte> bytes, const sockaddr *name,
                        socklen_t length) {
    const ssize_t sent =
        sendto(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL, name, length);
    return sent >= 0 ? base::Result<void>{} : base::last_failure();
}

// A datagram that cannot be sent is lost, as any datagram may be.
void send_from(int socket, int family, const Ip &from, const Address &to, std::span<const std::byte> bytes) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo))] = {};
    AnyAddress name{};
    const iovec part = base::part_of(bytes.data(), bytes.size());
    msghdr message = base::message_of(&part, 1);
    message.msg_name = &name;
    message.msg_namelen = write_address(to, family, name);
    message.msg_control = control;
    const auto describe = [&](int level, int type, const auto &info) {
        message.msg_controllen = CMSG_SPACE(sizeof(info));
        cmsghdr &header = *CMSG_FIRSTHDR(&message);
        header.cmsg_level = level;
        header.cmsg_type = type;
        header.cmsg_len = CMSG_LEN(sizeof(info));
        std::memcpy(CMSG_DATA(&header), &info, sizeof(info));
    };
    message.msg_controllen = sizeof(control);
    if (family == AF_INET) {
        in_pktinfo info{};
        info.ipi_spec_dst = from.v4();
        describe(IPPROTO_IP, IP_PKTINFO, info);
    } else {
        in6_pktinfo info{};
        info.ipi6_addr = from.v6();
        describe(IPPROTO_IPV6, IPV6_PKTINFO, info);
    }
    (void)sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

std::optional<Ip> source_towards(int socket, const Address &to) {
    const auto own = [](int one) -> std::optional<Ip> {
        AnyAddress name{};
        socklen_t length = sizeof(name);
        const auto address =
            getsockname(one, &name.any, &length) == 0 ? address_of(&name, length) : std::nullopt;
        return address && !address->ip.is_any() ? std::optional{address->ip} : std::nullopt;
    };
    if (const auto bound = own(socket)) {
        return bound;
    }
    AnyAddress name{};
    const int family = to.ip.is_v4() ? AF_INET : AF_INET6;
    const socklen_t length = write_address(to, family, name);
    const base::Fd probe{::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    if (!probe || ::connect(probe.get(), &name.any, length) != 0) {
        return std::nullopt;
    }
    return own(probe.get());
}

}  // namespace datagram::udp
