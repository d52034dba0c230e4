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

Origin origin_of_ipv4(std::uint32_t address) {
    const bool is_loopback = address >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
    return Origin{mapped_ipv4 | (is_loopback ? std::uint32_t{INADDR_LOOPBACK} : address)};
}

}  // namespace

Origin origin_of(const sockaddr_storage &address) {
    if (address.ss_family != AF_INET6) {
        return origin_of_ipv4(ntohl(reinterpret_cast<const sockaddr_in &>(address).sin_addr.s_addr));
    }
    const in6_addr &v6 = reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr;
    constexpr std::size_t middle = sizeof(std::uint64_t);
    if (IN6_IS_ADDR_LOOPBACK(&v6)) {
        return origin_of_ipv4(INADDR_LOOPBACK);
    }
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
        return origin_of_ipv4(static_cast<std::uint32_t>(half_of(v6, middle)));
    }
    return Origin{half_of(v6, IN6_IS_ADDR_LINKLOCAL(&v6) ? middle : 0)};
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
