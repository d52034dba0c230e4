// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol: encoding and checked decoding.
#include "cli/protocol.hpp"

#include <algorithm>

#include "base/cursor.hpp"
#include "cli/pool_format.hpp"

namespace cli {

namespace {

constexpr std::uint32_t magic = 0x4c4f4f50;  // "POOL"
// What version 1 has of both messages.
constexpr std::size_t first_hello_size = 8;
constexpr std::size_t first_offer_size = 38;

}  // namespace

const char *durability_text(Durability durability) {
    switch (durability) {
        case Durability::PageCache:
            return "page cache";
        case Durability::Dax:
            return "DAX";
        case Durability::ByMessage:
            return "page cache, by message";
        case Durability::None:
            break;
    }
    return "not durable";
}

HelloBytes encode_hello(const Hello &hello) {
    HelloBytes bytes{};
    base::Writer writer{bytes};
    writer.little(magic);
    writer.little(hello.version);
    writer.little(static_cast<std::uint8_t>(hello.mode));
    writer.little(std::uint8_t{0});
    writer.little(hello.messages);
    writer.little(hello.message_bytes);
    return bytes;
}

OfferBytes encode_offer(const Offer &offer) {
    OfferBytes bytes{};
    base::Writer writer{bytes};
    writer.little(magic);
    writer.little(offer.version);
    writer.little(static_cast<std::uint8_t>(offer.status));
    writer.little(static_cast<std::uint8_t>(offer.durability));
    writer.little(offer.capacity);
    writer.bytes(std::span{&offer.peer_configuration, 1});
    writer.bytes(offer.memory_region);
    writer.little(offer.tcp_port);
    return bytes;
}

StoreRequestBytes encode_store_request(const StoreRequest &request) {
    StoreRequestBytes bytes{};
    base::Writer writer{bytes};
    writer.little(request.offset);
    writer.little(request.length);
    return bytes;
}

Outcome<StoreRequest> decode_store_request(std::span<const std::byte> bytes) {
    if (bytes.size() != sizeof(StoreRequestBytes)) {
        return failed("sent a message of {} bytes (expected {}: what to make durable)", bytes.size(),
                      sizeof(StoreRequestBytes));
    }
    base::Reader reader{bytes};
    const auto offset = reader.little<std::uint64_t>();
    return StoreRequest{offset, reader.little<std::uint64_t>()};
}

Outcome<Hello> decode_hello(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto found_magic = reader.little<std::uint32_t>();
    Hello hello{reader.little<std::uint16_t>(), static_cast<Mode>(reader.little<std::uint8_t>())};
    const std::size_t expected =
        hello.version < protocol_version ? first_hello_size : sizeof(HelloBytes);  // later ones have no less
    if (bytes.size() < expected || found_magic != magic) {
        return failed("is no rpma client ({} bytes of private data, expected rpma's {})", bytes.size(),
                      expected);
    }
    if (hello.version < first_version || hello.version > protocol_version) {
        return hello;
    }
    if (hello.mode < Mode::Push || hello.mode > Mode::MeasureDurable ||
        version_of(hello.mode) > hello.version) {
        return failed("asks for unknown mode {} in version {} (expected push, pull or measure)",
                      static_cast<int>(hello.mode), hello.version);
    }
    if (hello.version > first_version) {
        (void)reader.little<std::uint8_t>();
        hello.messages = reader.little<std::uint32_t>();
        hello.message_bytes = reader.little<std::uint32_t>();
    }
    return hello;
}

Outcome<Offer> decode_offer(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto found_magic = reader.little<std::uint32_t>();
    Offer offer{.version = reader.little<std::uint16_t>(),
                .status = static_cast<Status>(reader.little<std::uint8_t>()),
                .durability = static_cast<Durability>(reader.little<std::uint8_t>()),
                .capacity = reader.little<std::uint64_t>(),
                .peer_configuration = static_cast<std::byte>(reader.little<std::uint8_t>())};
    const auto memory_region = reader.bytes(offer.memory_region.size());
    const std::size_t expected = offer.version < protocol_version ? first_offer_size : sizeof(OfferBytes);
    if (bytes.size() < expected || found_magic != magic) {
        return failed("is no rpma server ({} bytes of private data, expected rpma's {})", bytes.size(),
                      expected);
    }
    if (offer.version < first_version || offer.version > protocol_version ||
        offer.status == Status::Version) {
        return failed("speaks version {} of rpma's protocol (expected {})", offer.version, protocol_version);
    }
    if (offer.status > Status::Limit || offer.durability > Durability::ByMessage ||
        offer.capacity > largest_capacity || (offer.status == Status::Ok && offer.capacity == 0)) {
        return failed("offers what this rpma does not know (status {}, durability {}, capacity {})",
                      static_cast<int>(offer.status), static_cast<int>(offer.durability), offer.capacity);
    }
    std::ranges::copy(memory_region, offer.memory_region.begin());
    if (offer.version > first_version) {
        offer.tcp_port = reader.little<std::uint16_t>();
    }
    return offer;
}

}  // namespace cli
