// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol: what a client and the server of a pool tell each other, as private data of the connection.
// Everything after that is one-sided, but for what `rpma perf` measures. Pure: no I/O. All numbers are
// little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cli/failure.hpp"

namespace cli {

enum class Mode : std::uint8_t {
    Push = 1,
    Pull = 2,
    Measure = 3,         // in volatile memory that the server has for that
    MeasureDurable = 4,  // in the pool's slot that is not committed, which a push would write
};

enum class Status : std::uint8_t {
    Ok = 0,
    Busy = 1,     // another push is under way
    Version = 2,  // the server speaks another version
    Failed = 3,   // the server cannot give what is asked for now; its own output says why
    Limit = 4,    // more is asked for than the server gives
};

enum class Durability : std::uint8_t {
    None = 0,
    PageCache = 1,
    Dax = 2,
    ByMessage = 3,  // no flush makes it durable, the server does when it is asked to
};
// For people: "page cache", "DAX", "page cache, by message", "not durable".
[[nodiscard]] const char *durability_text(Durability durability);

// Version 2 added measuring and what belongs to it. Push and pull say 1, as before, so that any server serves
// them; who measures says 2, and an older server answers that it speaks 1.
inline constexpr std::uint16_t first_version = 1;
inline constexpr std::uint16_t protocol_version = 2;
[[nodiscard]] constexpr std::uint16_t version_of(Mode mode) {
    return mode == Mode::Push || mode == Mode::Pull ? first_version : protocol_version;
}

// The client's, with the connection request.
//    0        4         6      7          8          12              16
//    | magic  | version | mode | reserved | messages | message bytes |
// The last two, of version 2, are the receives that the server is to post: how many, and how large.
using HelloBytes = std::array<std::byte, 16>;
static_assert(sizeof(HelloBytes) <= 56, "RDMA_PS_TCP's limit for a request");

struct Hello {
    std::uint16_t version;
    Mode mode;
    std::uint32_t messages = 0;
    std::uint32_t message_bytes = 0;
};

// The server's, when it accepts. It accepts also those it will not serve, because a reject carries no reason.
//    0        4         6        7            8          16             17                38         40
//    | magic  | version | status | durability | capacity | peer config  | memory region   | TCP port |
// Peer config and memory region are librpma's descriptors; the port, of version 2, is the baseline's, 0 when
// nothing is measured. All but magic, version and status are 0 unless the status is Ok.
using OfferBytes = std::array<std::byte, 40>;
static_assert(sizeof(OfferBytes) <= 196, "RDMA_PS_TCP's limit for an answer");

struct Offer {
    std::uint16_t version = protocol_version;
    Status status = Status::Ok;
    Durability durability = Durability::None;
    std::uint64_t capacity = 0;
    std::byte peer_configuration{};
    std::array<std::byte, 21> memory_region{};
    std::uint16_t tcp_port = 0;
};

// A pusher's, as a message, where durability is by message: make these bytes of the region durable. The
// server answers each with an empty message, once they are; it takes so many at once.
//    0        8        16
//    | offset | length |
using StoreRequestBytes = std::array<std::byte, 16>;
inline constexpr std::uint32_t most_store_requests = 4;

struct StoreRequest {
    std::uint64_t offset;
    std::uint64_t length;
};

[[nodiscard]] HelloBytes encode_hello(const Hello &hello);
[[nodiscard]] OfferBytes encode_offer(const Offer &offer);
[[nodiscard]] StoreRequestBytes encode_store_request(const StoreRequest &request);

// Bytes behind the message are ignored: some transports pad private data with zeros. The failure says what is
// wrong and goes behind the peer's name. A hello of another version is decoded; its mode means nothing then.
[[nodiscard]] Outcome<Hello> decode_hello(std::span<const std::byte> bytes);
[[nodiscard]] Outcome<Offer> decode_offer(std::span<const std::byte> bytes);
[[nodiscard]] Outcome<StoreRequest> decode_store_request(std::span<const std::byte> bytes);

}  // namespace cli
