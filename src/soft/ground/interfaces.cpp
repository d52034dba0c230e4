// SPDX-License-Identifier: BSD-3-Clause
#include "soft/ground/interfaces.hpp"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

#include "base/address.hpp"
#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/mutex.hpp"

namespace soft {

namespace {

// The socket on which the kernel reports changes.
class Changes {
public:
    // Returns whether there was a change since the last call, or may have been one.
    [[nodiscard]] bool any() {
        if (generation_ != base::fork_generation()) {
            (void)socket_.release();  // the parent's: a message that one process reads is lost for the other
            generation_ = base::fork_generation();
        }
        if (!socket_) {
            socket_ = opened();
            return true;
        }
        bool changed = false;
        std::byte first{};
        ssize_t count = 0;
        do {
            count = recv(socket_.get(), &first, sizeof(first), MSG_DONTWAIT);
            changed = changed || count >= 0 || errno != EAGAIN;
        } while (count > 0 || (count < 0 && errno == ENOBUFS));
        return changed;
    }

private:
    [[nodiscard]] static base::Fd opened() {
        base::Fd socket{::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)};
        sockaddr_nl groups{};
        groups.nl_family = AF_NETLINK;
        groups.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
        const bool told =
            socket && bind(socket.get(), reinterpret_cast<const sockaddr *>(&groups), sizeof(groups)) == 0;
        return told ? std::move(socket) : base::Fd{};
    }

    base::Fd socket_;
    unsigned generation_ = base::fork_generation();
};

constinit base::LastingMutex addresses_lock;

const base::HeldWhileForking<addresses_lock> addresses_survive_forks{base::ForkLevel::SoftGround};

bool serves(const ifaddrs &entry) {
    return entry.ifa_addr != nullptr && (entry.ifa_flags & IFF_UP) != 0 &&
           (entry.ifa_addr->sa_family == AF_INET || entry.ifa_addr->sa_family == AF_INET6);
}

// An IPv4 address comes with a label in place of the interface: the interface's name, sometimes followed by a
// colon and more text. No interface has a colon in its name.
std::string interface_of(std::string_view label) {
    return std::string{label.substr(0, label.find(':'))};
}

base::Result<std::shared_ptr<const LocalAddresses>> asked_for() {
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) {
        return base::last_failure();
    }
    auto all = std::make_shared<LocalAddresses>();
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{list, freeifaddrs};
    for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (serves(*entry)) {
            all->push_back({.interface = interface_of(entry->ifa_name),
                            .is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0,
                            .address = tcp::copy_of(*entry->ifa_addr)});
        }
    }
    return all;
}

bool is_loopback(const tcp::Address &address) {
    if (address.ss_family == AF_INET) {
        return (ntohl(reinterpret_cast<const sockaddr_in &>(address).sin_addr.s_addr) >> 24) ==
               IN_LOOPBACKNET;
    }
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr);
}

}  // namespace

base::Result<std::shared_ptr<const LocalAddresses>> local_addresses() {
    static auto &changes = *new Changes;  // never destroyed, because ids may be made while the process ends
    static auto &known = *new std::shared_ptr<const LocalAddresses>;
    const base::Lock lock{addresses_lock};
    // This comes before the query, so that a change during the query is reported again.
    if (changes.any() || known == nullptr) {
        known = nullptr;  // after a failure the next call asks again
        auto told = asked_for();
        if (!told) {
            return told;
        }
        known = *std::move(told);
    }
    return known;
}

bool is_here(const tcp::Address &address) {
    if (is_loopback(address)) {
        return true;
    }
    const auto known = local_addresses();
    return known && std::ranges::any_of(**known, [&address](const LocalAddress &one) {
               return base::same_host(one.address, address);
           });
}

}  // namespace soft
