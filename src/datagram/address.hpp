// SPDX-License-Identifier: BSD-3-Clause
// datagram/address: the addresses of datagrams, IPv4 and IPv6 alike.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>

namespace datagram {

// An IPv4 address is mapped into an IPv6 one (RFC 4291), as RoCE version 2 has them in a GID.
struct Ip {
    std::array<std::uint8_t, 16> bytes{};

    [[nodiscard]] static Ip of_v4(in_addr address) {
        Ip ip{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}};
        std::memcpy(&ip.bytes[12], &address, sizeof(address));
        return ip;
    }
    [[nodiscard]] static Ip of_v6(const in6_addr &address) {
        Ip ip;
        std::memcpy(ip.bytes.data(), &address, sizeof(address));
        return ip;
    }
    [[nodiscard]] in_addr v4() const {
        in_addr address;
        std::memcpy(&address, &bytes[12], sizeof(address));
        return address;
    }
    [[nodiscard]] in6_addr v6() const {
        in6_addr address;
        std::memcpy(&address, bytes.data(), sizeof(address));
        return address;
    }
    [[nodiscard]] bool is_v4() const {
        const in6_addr address = v6();
        return IN6_IS_ADDR_V4MAPPED(&address);
    }
    [[nodiscard]] bool is_multicast() const {
        return is_v4() ? IN_MULTICAST(ntohl(v4().s_addr)) : bytes[0] == 0xff;
    }
    [[nodiscard]] bool is_any() const {
        return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; }) ||
               (is_v4() && v4().s_addr == INADDR_ANY);
    }
    friend bool operator==(const Ip &, const Ip &) = default;
};

struct Address {
    Ip ip{};
    std::uint16_t port = 0;
    std::uint32_t scope = 0;  // the interface's index, where the address is link-local

    friend bool operator==(const Address &, const Address &) = default;

    struct Hash {
        std::size_t operator()(const Address &address) const {
            const std::string_view bytes{reinterpret_cast<const char *>(address.ip.bytes.data()),
                                         address.ip.bytes.size()};
            return std::hash<std::string_view>{}(bytes) ^ (std::size_t{address.port} << 16 | address.scope);
        }
    };
};

union AnyAddress {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
};

// Returns nothing when the name is of another family, or too short.
[[nodiscard]] inline std::optional<Address> address_of(const void *name, socklen_t length) {
    AnyAddress copy{};
    std::memcpy(&copy, name, std::min<std::size_t>(length, sizeof(copy)));
    if (length >= sizeof(copy.v4) && copy.any.sa_family == AF_INET) {
        return Address{.ip = Ip::of_v4(copy.v4.sin_addr), .port = ntohs(copy.v4.sin_port)};
    }
    if (length >= sizeof(copy.v6) && copy.any.sa_family == AF_INET6) {
        return Address{.ip = Ip::of_v6(copy.v6.sin6_addr),
                       .port = ntohs(copy.v6.sin6_port),
                       .scope = IN6_IS_ADDR_LINKLOCAL(&copy.v6.sin6_addr) ? copy.v6.sin6_scope_id : 0};
    }
    return std::nullopt;
}

// Writes the address as a socket of the family has it, and returns its length.
[[nodiscard]] inline socklen_t write_address(const Address &address, int family, AnyAddress &to) {
    to = {};
    if (family == AF_INET) {
        to.v4.sin_family = AF_INET;
        to.v4.sin_port = htons(address.port);
        to.v4.sin_addr = address.ip.v4();
        return sizeof(to.v4);
    }
    to.v6.sin6_family = AF_INET6;
    to.v6.sin6_port = htons(address.port);
    to.v6.sin6_addr = address.ip.v6();
    to.v6.sin6_scope_id = address.scope;
    return sizeof(to.v6);
}

}  // namespace datagram
