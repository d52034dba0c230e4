// SPDX-License-Identifier: BSD-3-Clause
// unit/soft: a network of a test's own, which has only the loopback interface, and whose addresses the test
// sets.
#pragma once

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstring>

#include "base/fd.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace test {

// main() returns this where the process may not make a network.
constexpr int skipped = 77;

// The process has one thread. The interface is down.
[[nodiscard]] inline bool enter_own_network() {
    const bool is_in_it = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    if (!is_in_it) {
        std::perror("no network of our own");
    }
    return is_in_it;
}

inline sockaddr_in ipv4(const char *text) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    assert_int_equal(inet_pton(AF_INET, text, &address.sin_addr), 1);
    return address;
}

inline void set_interface(unsigned long what, ifreq wanted, const char *label) {
    std::strncpy(wanted.ifr_name, label, sizeof(wanted.ifr_name) - 1);
    const base::Fd any{socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(ioctl(any.get(), what, &wanted), 0);
}

inline void set_up(bool up) {
    ifreq wanted{};
    wanted.ifr_flags = static_cast<short>(up ? IFF_UP : 0);
    set_interface(SIOCSIFFLAGS, wanted, "lo");
}

// Sets the address, and replaces one with the same label. All of its network is local then (AnyIP).
inline void set_address(const char *text, const char *label = "lo") {
    ifreq wanted{};
    const sockaddr_in address = ipv4(text);
    std::memcpy(&wanted.ifr_addr, &address, sizeof(address));
    set_interface(SIOCSIFADDR, wanted, label);
}

}  // namespace test
