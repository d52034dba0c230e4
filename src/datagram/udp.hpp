// SPDX-License-Identifier: BSD-3-Clause
// datagram/udp: datagrams of a UDP socket that does not block, with the address of this machine that each
// came to or leaves from.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "base/result.hpp"
#include "datagram/address.hpp"

namespace datagram::udp {

// Makes the socket report the address to which each datagram came.
[[nodiscard]] base::Result<void> prepare(int socket, int family);

struct Arrival {
    std::size_t bytes = 0;  // more than the buffer has when the rest was cut off
    Address from{};
    Ip to{};
    bool unicast = false;  // sent to that address, and not to a group or to all
};
// EAGAIN: there is none. Other errors are the network's, for a datagram that was sent.
[[nodiscard]] base::Result<Arrival> receive(int socket, std::span<std::byte> buffer);

// Sends to the name, or, when it is nullptr, to the connected peer. Errors are those of sendmsg(2).
[[nodiscard]] base::Result<void> send(int socket, std::span<const std::byte> bytes, const sockaddr *name,
                                      socklen_t length);
// Sends from an address of this machine.
void send_from(int socket, int family, const Ip &from, const Address &to, std::span<const std::byte> bytes);

// Returns the address from which a datagram to `to` leaves: the socket's, or the one that the kernel chooses.
[[nodiscard]] std::optional<Ip> source_towards(int socket, const Address &to);

}  // namespace datagram::udp
