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

// Has the socket tell what arrives where.
[[nodiscard]] base::Result<void> prepare(int socket, int family);

struct Arrival {
    std::size_t bytes = 0;  // more than the buffer has when the rest was cut off
    Address from{};
    Ip to{};
    bool unicast = false;  // sent to that address, and not to a group or to all
};
// EAGAIN: there is none. Others: what the network said of a datagram that was sent.
[[nodiscard]] base::Result<Arrival> receive(int socket, std::span<std::byte> buffer);

// Sends to the name, or to the connected peer when it is nullptr, or else as sendmsg(2) has it.
[[nodiscard]] base::Result<void> send(int socket, std::span<const std::byte> bytes, const sockaddr *name,
                                      socklen_t length);
// Sends from an address of this machine.
void send_from(int socket, int family, const Ip &from, const Address &to, std::span<const std::byte> bytes);

// The address from which a datagram to `to` leaves: that of the socket, or the one that the kernel chooses.
[[nodiscard]] std::optional<Ip> source_towards(int socket, const Address &to);

}  // namespace datagram::udp
