// SPDX-License-Identifier: BSD-3-Clause
// base/origin: the addresses of peers, as far as limits and delays tell them apart. Origins share the
// scarce resources of a listener or the process: when one is used up, the oldest holder of the origin that
// has most loses it.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <map>

namespace base {

// An IPv4 address, or the upper 64 bits of an IPv6 one, because one host may have all of the lower ones. A
// link-local address counts with its lower 64 bits, because the upper ones are the same for all. The
// addresses of the loopback are one, because any program of this host may have all of them.
enum class Origin : std::uint64_t {};
[[nodiscard]] Origin origin_of(const sockaddr_storage &address);

// The amount of a resource that each origin has. It is not thread-safe.
class Shares {
public:
    // Allocates memory when the origin has none of the resource.
    void add(Origin origin, std::size_t amount = 1) { amounts_[origin] += amount; }
    // Removes an amount that was added before.
    void remove(Origin origin, std::size_t amount = 1);
    [[nodiscard]] std::size_t of(Origin origin) const;
    // Returns the amount of the origin that has most.
    [[nodiscard]] std::size_t most() const;

private:
    std::map<Origin, std::size_t> amounts_;  // only of origins that have some
};

}  // namespace base
