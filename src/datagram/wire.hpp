// SPDX-License-Identifier: BSD-3-Clause
// datagram/wire: the bytes in front of a message, as librdmacm's rsockets have them. Pure.
//
// Over UDP (an envelope), IPv4 | IPv6, in network order:
//
//      0                               4       5       6       7       8               12
//     +-------------------------------+-------+-------+-------+-------+---------------+-----------------+
//     |  0x55555555                   |version|  op   | bytes |   0   | queue pair (4)| IP address 4|16 |
//     +-------------------------------+-------+-------+-------+-------+---------------+-----------------+
//
//     version is 4 or 6; op is 0, a message follows, or 7, nothing does; bytes is this header's, 16 or 28.
//     The queue pair is the sender's, at the address that follows; 0 says that it has none. librdmacm writes
//     four bytes of flow in front of an IPv6 address, of which the last four are not there then.
//
// Over a queue pair (a label), IPv4 | IPv6:
//
//      0       1       2               4               8
//     +-------+-------+---------------+---------------+------------------+
//     |version| bytes |     port      | IPv4 | flow   | IPv6 address (16)|      bytes is 8 or 24
//     +-------+-------+---------------+---------------+------------------+
//
//     It says from whom the message is: the address of the sender's UDP socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "datagram/address.hpp"

namespace datagram {

inline constexpr std::size_t most_header_bytes = 28;
// The longest message with its header: librdmacm has room for no more.
inline constexpr std::size_t slot_bytes = 2048;

enum class Op : std::uint8_t { Message = 0, Answer = 7 };

struct Envelope {
    Op op = Op::Message;
    std::uint32_t qp_num = 0;
    Ip ip{};

    friend bool operator==(const Envelope &, const Envelope &) = default;
};

[[nodiscard]] inline std::size_t envelope_bytes(const Ip &ip) {
    return ip.is_v4() ? 16 : 28;
}
[[nodiscard]] inline std::size_t label_bytes(const Ip &ip) {
    return ip.is_v4() ? 8 : 24;
}
// The longest message between addresses of this kind, whichever way it takes.
[[nodiscard]] inline std::size_t most_message_bytes(const Ip &ip) {
    return slot_bytes - envelope_bytes(ip);
}

// Returns whether the address that a sender writes is the one that its datagrams come from.
[[nodiscard]] bool names(const Envelope &envelope, const Ip &source);

// Returns whether a queue pair can have this number: 0 and 1 are the device's own, and the last one is that
// of groups.
[[nodiscard]] inline bool is_number_of_pair(std::uint32_t qp_num) {
    return qp_num > 1 && qp_num < 0xffffff;
}

// Writes envelope_bytes() or label_bytes(); there is room for them.
void encode(const Envelope &envelope, std::span<std::byte> to);
void encode(const Address &from, std::span<std::byte> to);

// Returns the header of a datagram, or nothing when it has no header of this protocol.
[[nodiscard]] std::optional<Envelope> decode_envelope(std::span<const std::byte> datagram);
// The scope is not in a label.
[[nodiscard]] std::optional<Address> decode_label(std::span<const std::byte> message);

}  // namespace datagram
