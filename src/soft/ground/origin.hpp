// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/origin: where peers are, as far as limits and delays tell them apart. Origins share what a
// listener or the process has little of: when it is used up, the oldest of the origin that has most gives
// way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "soft/ground/tcp.hpp"

namespace soft {

// An IPv4 address, or the upper 64 bits of an IPv6 one, because a network gives the lower ones to one host;
// of a link-local address the lower 64, because the upper ones are the same for all.
enum class Origin : std::uint64_t {};
[[nodiscard]] Origin origin_of(const tcp::Address &address);

// How much of something each origin has. Not thread-safe.
class Shares {
public:
    // Needs memory when the origin has none.
    void add(Origin origin, std::size_t amount = 1) { amounts_[origin] += amount; }
    // The amount was added before.
    void remove(Origin origin, std::size_t amount = 1);
    [[nodiscard]] std::size_t of(Origin origin) const;
    // The amount of the origin that has most.
    [[nodiscard]] std::size_t most() const;

private:
    std::map<Origin, std::size_t> amounts_;  // without those that have none
};

}  // namespace soft
