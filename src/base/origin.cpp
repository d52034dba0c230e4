// SPDX-License-Identifier: BSD-3-Clause
#include "base/origin.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

namespace base {

namespace {

// An IPv4 address that is mapped into an IPv6 one has these bits in its lower 64. No network has them as its
// upper 64.
constexpr std::uint64_t mapped_ipv4 = std::uint64_t{0xffff} << 32;

std::uint64_t half_of(const in6_addr &address, std::size_t first_byte) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < sizeof(bits); ++i) {
        bits = bits << 8 | address.s6_addr[first_byte + i];
    }
    return bits;
}

}  // namespace

Origin origin_of(const sockaddr_storage &address) {
    if (address.ss_family != AF_INET6) {
        const auto &v4 = reinterpret_cast<const sockaddr_in &>(address);
        return Origin{mapped_ipv4 | ntohl(v4.sin_addr.s_addr)};
    }
    const in6_addr &v6 = reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr;
    const bool lower = IN6_IS_ADDR_LINKLOCAL(&v6) || IN6_IS_ADDR_V4MAPPED(&v6);
    return Origin{half_of(v6, lower ? sizeof(std::uint64_t) : 0)};
}

void Shares::remove(Origin origin, std::size_t amount) {
    const auto known = amounts_.find(origin);
    known->second -= amount;
    if (known->second == 0) {
        amounts_.erase(known);
    }
}

std::size_t Shares::of(Origin origin) const {
    const auto known = amounts_.find(origin);
    return known != amounts_.end() ? known->second : 0;
}

std::size_t Shares::most() const {
    std::size_t most = 0;
    for (const auto &[origin, amount] : amounts_) {
        most = std::max(most, amount);
    }
    return most;
}

}  // namespace base
