// SPDX-License-Identifier: BSD-3-Clause
// carry_device/names: the addresses of a connection's ends, as the calls of sockets have them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/fd.hpp"
#include "carry/high_number.hpp"
#include "carry/link.hpp"

namespace carry_device {

struct Name {
    sockaddr_storage address{};
    socklen_t length = 0;

    [[nodiscard]] const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&address); }
};

// Returns an end's address with another port.
[[nodiscard]] inline Name name_of(const carry::FourTuple::End &end, std::uint16_t port) {
    Name name;
    const auto number = htons(port);
    if (IN6_IS_ADDR_V4MAPPED(&end.address)) {
        auto &four = reinterpret_cast<sockaddr_in &>(name.address);
        four.sin_family = AF_INET;
        four.sin_port = number;
        std::memcpy(&four.sin_addr, &end.address.s6_addr[12], sizeof(four.sin_addr));
        name.length = sizeof(four);
    } else {
        auto &six = reinterpret_cast<sockaddr_in6 &>(name.address);
        six.sin6_family = AF_INET6;
        six.sin6_port = number;
        six.sin6_addr = end.address;
        six.sin6_scope_id = end.scope;
        name.length = sizeof(six);
    }
    return name;
}

// Returns an address of IPv4 as it is mapped into IPv6.
[[nodiscard]] inline in6_addr address_of(const sockaddr_storage &name) {
    if (name.ss_family == AF_INET6) {
        return reinterpret_cast<const sockaddr_in6 &>(name).sin6_addr;
    }
    in6_addr address{};
    address.s6_addr[10] = address.s6_addr[11] = 0xff;
    std::memcpy(&address.s6_addr[12], &reinterpret_cast<const sockaddr_in &>(name).sin_addr, sizeof(in_addr));
    return address;
}

// Returns a socket that is bound to a port of all addresses of this host, of both families, or of IPv4 where
// there is no IPv6. prepare(its number) sets options; the socket is not made when it returns false.
template <typename Prepare>
[[nodiscard]] base::Fd bound_to_all(int type, std::uint16_t port, Prepare prepare) {
    carry::FourTuple::End any;
    for (const int family : {AF_INET6, AF_INET}) {
        base::Fd fd{carry::high_number(socket(family, type, 0))};
        if (family == AF_INET) {
            any.address.s6_addr[10] = any.address.s6_addr[11] = 0xff;
        }
        const Name name = name_of(any, port);
        constexpr int off = 0;
        if (fd &&
            (family == AF_INET || setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0) &&
            prepare(fd.get()) && bind(fd.get(), name.get(), name.length) == 0) {
            return fd;
        }
    }
    return {};
}

}  // namespace carry_device
