// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/listen_addresses: getaddrinfo and getifaddrs.
#include "cli/serve/listen_addresses.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <memory>

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

}  // namespace cli
