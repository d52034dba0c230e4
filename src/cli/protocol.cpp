// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol: encoding and checked decoding.
#include "cli/protocol.hpp"

#include <algorithm>

#include "base/cursor.hpp"
#include "cli/pool_format.hpp"

namespace cli {

namespace {

constexpr std::uint32_t magic = 0x4c4f4f50;  // "POOL"

}  // namespace

const char *durability_text(Durability durability) {
    switch (durability) {
        case Durability::PageCache:
            return "page cache";
        case Durability::Dax:
            return "DAX";
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
    return bytes;
}

OfferBytes encode_offer(const Offer &offer) {
    OfferBytes bytes{};
    base::Writer writer{bytes};
    writer.little(magic);
    writer.little(protocol_version);
    writer.little(static_cast<std::uint8_t>(offer.status));
    writer.little(static_cast<std::uint8_t>(offer.durability));
    writer.little(offer.capacity);
    writer.bytes(std::span{&offer.peer_configuration, 1});
    writer.bytes(offer.memory_region);
    return bytes;
}

Outcome<Hello> decode_hello(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto found_magic = reader.little<std::uint32_t>();
    const Hello hello{reader.little<std::uint16_t>(), static_cast<Mode>(reader.little<std::uint8_t>())};
    if (bytes.size() < sizeof(HelloBytes) || found_magic != magic) {
        return failed("is no rpma client ({} bytes of private data, expected rpma's {})", bytes.size(),
                      sizeof(HelloBytes));
    }
    if (hello.version == protocol_version && hello.mode != Mode::Push && hello.mode != Mode::Pull) {
        return failed("asks for unknown mode {} (expected push or pull)", static_cast<int>(hello.mode));
    }
    return hello;
}

Outcome<Offer> decode_offer(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto found_magic = reader.little<std::uint32_t>();
    const auto version = reader.little<std::uint16_t>();
    Offer offer{.status = static_cast<Status>(reader.little<std::uint8_t>()),
                .durability = static_cast<Durability>(reader.little<std::uint8_t>()),
                .capacity = reader.little<std::uint64_t>(),
                .peer_configuration = static_cast<std::byte>(reader.little<std::uint8_t>())};
    const auto memory_region = reader.bytes(offer.memory_region.size());
    if (!reader.ok() || found_magic != magic) {
        return failed("is no rpma server ({} bytes of private data, expected rpma's {})", bytes.size(),
                      sizeof(OfferBytes));
    }
    if (version != protocol_version || offer.status == Status::Version) {
        return failed("speaks version {} of rpma's protocol (expected {})", version, protocol_version);
    }
    if (offer.status > Status::Failed || offer.durability > Durability::Dax ||
        offer.capacity > largest_capacity || (offer.status == Status::Ok && offer.capacity == 0)) {
        return failed("offers what this rpma does not know (status {}, durability {}, capacity {})",
                      static_cast<int>(offer.status), static_cast<int>(offer.durability), offer.capacity);
    }
    std::ranges::copy(memory_region, offer.memory_region.begin());
    return offer;
}

}  // namespace cli
