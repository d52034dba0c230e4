// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol: what a client and the server of a pool tell each other, as private data of the connection.
// Everything after that is one-sided. Pure: no I/O. All numbers are little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cli/failure.hpp"

namespace cli {

enum class Mode : std::uint8_t { Push = 1, Pull = 2 };

enum class Status : std::uint8_t {
    Ok = 0,
    Busy = 1,     // another push is under way
    Version = 2,  // the server speaks another version
    Failed = 3,   // the server's pool cannot be made durable now; its own output says why
};

enum class Durability : std::uint8_t { None = 0, PageCache = 1, Dax = 2 };
// For people: "page cache", "DAX", "not durable".
[[nodiscard]] const char *durability_text(Durability durability);

// The client's, with the connection request.
//    0        4         6      7          8
//    | magic  | version | mode | reserved |
using HelloBytes = std::array<std::byte, 8>;
static_assert(sizeof(HelloBytes) <= 56, "RDMA_PS_TCP's limit for a request");

struct Hello {
    std::uint16_t version;
    Mode mode;
};

// The server's, when it accepts. It accepts also those it will not serve, because a reject carries no reason.
//    0        4         6        7            8          16             17                38
//    | magic  | version | status | durability | capacity | peer config  | memory region   |
// The last two are librpma's descriptors; all but magic, version and status are 0 unless the status is Ok.
using OfferBytes = std::array<std::byte, 38>;
static_assert(sizeof(OfferBytes) <= 196, "RDMA_PS_TCP's limit for an answer");

struct Offer {
    Status status = Status::Ok;
    Durability durability = Durability::None;
    std::uint64_t capacity = 0;
    std::byte peer_configuration{};
    std::array<std::byte, 21> memory_region{};
};

inline constexpr std::uint16_t protocol_version = 1;

[[nodiscard]] HelloBytes encode_hello(const Hello &hello);
[[nodiscard]] OfferBytes encode_offer(const Offer &offer);

// Bytes behind the message are ignored: some transports pad private data with zeros. The failure says what is
// wrong and goes behind the peer's name. A hello of another version is decoded; its mode means nothing then.
[[nodiscard]] Outcome<Hello> decode_hello(std::span<const std::byte> bytes);
[[nodiscard]] Outcome<Offer> decode_offer(std::span<const std::byte> bytes);

}  // namespace cli
