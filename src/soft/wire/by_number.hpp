// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/by_number: the private data of the MPA request with which a queue pair that is connected by
// number names itself and its peer. The message is our own, between soft devices.
//
//     0        4      5                8      9                12
//     +--------+------+----------------+------+----------------+
//     | "sNum" | type | destination QP |  0   |   source QP    |
//     +--------+------+----------------+------+----------------+
//     type: that of the source: 1 RC, 2 UC, 3 XRC_SEND, 4 XRC_RECV
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace soft::wire {

inline constexpr std::size_t queue_pair_names_bytes = 12;
// UD queue pairs have the numbers from here on, and are not connected.
inline constexpr std::uint32_t first_datagram_number = 0x800000;

enum class QueuePairType : std::uint8_t { Reliable = 1, Unreliable = 2, XrcSend = 3, XrcReceive = 4 };

struct QueuePairNames {
    QueuePairType type = QueuePairType::Reliable;  // of the source
    std::uint32_t destination = 0;                 // below first_datagram_number
    std::uint32_t source = 0;                      // of 24 bits

    friend bool operator==(const QueuePairNames &, const QueuePairNames &) = default;
};

// Returns nothing when the private data is anything else, also when it is longer.
[[nodiscard]] std::optional<QueuePairNames> decode_names(std::span<const std::byte> private_data);
[[nodiscard]] std::array<std::byte, queue_pair_names_bytes> encode(const QueuePairNames &names);

}  // namespace soft::wire
