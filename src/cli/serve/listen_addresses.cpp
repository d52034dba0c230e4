// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/listen_addresses: getaddrinfo, getifaddrs and rtnetlink(7).
#include "cli/serve/listen_addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "base/network.hpp"

namespace cli {

namespace {

Outcome<std::string> numeric(const sockaddr *address) {
    const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::array<char, NI_MAXHOST> text{};
    if (const int error = getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
        error != 0) {
        return failed("an address cannot be printed: {}", gai_strerror(error));
    }
    return text.data();
}

// Returns whether a peer can reach this address of the machine: it is up, of a wanted family, and not
// link-local.
bool is_reachable(const ifaddrs &one, bool both_families) {
    if (one.ifa_addr == nullptr || (one.ifa_flags & IFF_UP) == 0) {
        return false;
    }
    if (one.ifa_addr->sa_family == AF_INET6) {
        return both_families &&
               !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6 *>(one.ifa_addr)->sin6_addr);
    }
    return one.ifa_addr->sa_family == AF_INET;
}

Outcome<ListenAddresses> all_of_machine(const std::string &port, bool both_families) {
    ifaddrs *first = nullptr;
    if (getifaddrs(&first) != 0) {
        return failed("this machine's addresses are unknown: {}", errno_text(errno));
    }
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs *)> owner{first, freeifaddrs};
    ListenAddresses found{{}, true};
    for (const ifaddrs *one = first; one != nullptr; one = one->ifa_next) {
        if (is_reachable(*one, both_families)) {
            found.addresses.push_back({TRY(numeric(one->ifa_addr)), port});
        }
    }
    if (found.addresses.empty()) {
        return failed("expected an address of this machine; it has none");
    }
    return found;
}

}  // namespace

Outcome<ListenAddresses> listen_addresses(const Address &address) {
    addrinfo *first = nullptr;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = getaddrinfo(address.host.c_str(), nullptr, &hints, &first); error != 0) {
        return failed("{}: {}", address.host,
                      error == EAI_SYSTEM ? errno_text(errno)
                                          : (error == EAI_NONAME ? "unknown host" : gai_strerror(error)));
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo *)> owner{first, freeaddrinfo};
    const std::string host = TRY(numeric(first->ai_addr));
    if (host == "0.0.0.0" || host == "::") {
        return all_of_machine(address.port, host == "::");
    }
    return ListenAddresses{{{host, address.port}}, false};
}

Outcome<base::Fd> address_changes() {
    base::Fd socket{::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE)};
    sockaddr_nl groups{};
    groups.nl_family = AF_NETLINK;
    groups.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
    if (!socket || bind(socket.get(), reinterpret_cast<const sockaddr *>(&groups), sizeof(groups)) != 0) {
        return failed("changes of this machine's addresses cannot be seen: {}", errno_text(errno));
    }
    return socket;
}

bool is_public(const std::string &host) {
    constexpr std::array all = {"0.0.0.0/0", "2000::/3"};
    constexpr std::array special = {"0.0.0.0/8",      "10.0.0.0/8",    "100.64.0.0/10",   "127.0.0.0/8",
                                    "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",
                                    "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
                                    "224.0.0.0/3",    "2001:db8::/32"};
    sockaddr_storage address{};
    if (inet_pton(AF_INET, host.c_str(), &reinterpret_cast<sockaddr_in &>(address).sin_addr) == 1) {
        address.ss_family = AF_INET;
    } else if (inet_pton(AF_INET6, host.c_str(), &reinterpret_cast<sockaddr_in6 &>(address).sin6_addr) == 1) {
        address.ss_family = AF_INET6;
    }
    const auto is_in = [&](const char *network) { return base::Network::parse(network)->has(address); };
    return std::ranges::any_of(all, is_in) && std::ranges::none_of(special, is_in);
}

}  // namespace cli
