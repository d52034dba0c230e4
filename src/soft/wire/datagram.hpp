// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/datagram: the datagrams of two soft devices over UDP: messages of UD queue pairs, and the look-up
// of a service (SIDR in the InfiniBand specification). The format is our own; all numbers are big-endian.
//
//      0        4         5      6       8
//     +--------+---------+------+-------+
//     | "sRUD" | version | kind | extra |       every datagram begins with this
//     +--------+---------+------+-------+
//      8                12          16     20          24
//     +----------------+-----------+------+-----------+---------+
//     | destination QP | source QP | Q_Key| immediate | payload |          message; extra: flags
//     +----------------+-----------+------+-----------+---------+
//      8       16                                   196
//     +-------+------------------------------------+
//     | token | private data, zeroes up to the end |          request; extra: bytes of private data
//     +-------+------------------------------------+
//      8       16       20   24      28
//     +-------+--------+----+-------+--------------+
//     | token | status | QP | Q_Key | private data |          reply; extra: bytes of private data
//     +-------+--------+----+-------+--------------+
//
// A request is longer than any reply, and only a request gets a reply. So a sender that forges its source
// gains nothing, and no messages can circulate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace soft::wire {

inline constexpr std::size_t datagram_prefix_bytes = 8;
inline constexpr std::size_t message_header_bytes = datagram_prefix_bytes + 4 * sizeof(std::uint32_t);
inline constexpr std::size_t lookup_max_private_bytes = 180;  // as rdma_connect's manual promises
inline constexpr std::size_t lookup_request_bytes =
    datagram_prefix_bytes + sizeof(std::uint64_t) + lookup_max_private_bytes;
inline constexpr std::size_t reply_header_bytes =
    datagram_prefix_bytes + sizeof(std::uint64_t) + 3 * sizeof(std::uint32_t);
inline constexpr std::size_t reply_max_private_bytes = 136;  // as rdma_accept's manual promises
inline constexpr std::size_t reply_max_bytes = reply_header_bytes + reply_max_private_bytes;
static_assert(message_header_bytes == 24 && lookup_request_bytes == 196 && reply_header_bytes == 28);
static_assert(reply_max_bytes < lookup_request_bytes);

// Returns the UDP port of the queue pair with this number.
[[nodiscard]] constexpr std::uint16_t port_of(std::uint32_t qp_num) {
    return static_cast<std::uint16_t>(qp_num & 0xffff);
}

// The header of a message. Its payload is the rest of the datagram.
struct MessageHeader {
    bool solicited = false;
    bool has_immediate = false;
    std::uint32_t destination = 0;  // a queue pair's number, 24 bits
    std::uint32_t source = 0;
    std::uint32_t qkey = 0;
    std::uint32_t immediate = 0;  // 0 when there is none
};

struct LookupRequest {
    std::uint64_t token = 0;  // the reply has the same
    // NOLINTNEXTLINE(readability-redundant-member-init): g++ asks for it in designated initialisers
    std::span<const std::byte> private_data = {};
};

// The numbers of the InfiniBand specification.
enum class LookupStatus : std::uint32_t { Found = 0, Rejected = 2 };

struct LookupReply {
    std::uint64_t token = 0;
    LookupStatus status = LookupStatus::Found;
    std::uint32_t qp_num = 0;
    std::uint32_t qkey = 0;
    // NOLINTNEXTLINE(readability-redundant-member-init)
    std::span<const std::byte> private_data = {};
};

// These return nothing when the bytes are no such message; the caller then drops them silently. Private data
// borrows from `datagram`.
[[nodiscard]] std::optional<MessageHeader> decode_message(std::span<const std::byte> datagram);
[[nodiscard]] std::optional<LookupRequest> decode_lookup_request(std::span<const std::byte> datagram);
[[nodiscard]] std::optional<LookupReply> decode_lookup_reply(std::span<const std::byte> datagram);

using MessageHeaderBytes = std::array<std::byte, message_header_bytes>;
using LookupRequestBytes = std::array<std::byte, lookup_request_bytes>;
using LookupReplyBytes = std::array<std::byte, reply_max_bytes>;

[[nodiscard]] MessageHeaderBytes encode(const MessageHeader &header);
// The caller's private data is not longer than the maximum.
[[nodiscard]] LookupRequestBytes encode(const LookupRequest &request);
// Returns the number of bytes written.
[[nodiscard]] std::size_t encode(const LookupReply &reply, LookupReplyBytes &bytes);

}  // namespace soft::wire
