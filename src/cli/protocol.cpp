// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol: encodes, and decodes with checks.
#include "cli/protocol.hpp"

#include <algorithm>
#include <string_view>

#include "base/cursor.hpp"
#include "cli/arguments.hpp"
#include "cli/pool_format.hpp"

namespace cli {

namespace {

constexpr std::uint32_t message_magic = 0x4c4f4f50;  // "POOL"
// In every version both messages begin with magic, version, and mode or status.
constexpr std::size_t common_size = 8;
constexpr std::size_t pusher_size = 48;
constexpr std::size_t why_offset = 72 + pusher_size;
// A server that is older than the text sends no more than these bytes, and zeros.
constexpr std::size_t offer_size = why_offset;

// Text in a message ends with the message or with a zero.
std::string text_of(std::span<const std::byte> bytes) {
    return printable(bytes, std::string_view{"\0", 1});
}

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
    writer.little(message_magic);
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
    writer.little(message_magic);
    writer.little(offer.version);
    writer.little(static_cast<std::uint8_t>(offer.status));
    writer.little(static_cast<std::uint8_t>(offer.durability));
    if (offer.status != Status::Ok) {
        const auto text = std::as_bytes(std::span{offer.reason});
        writer.bytes(text.first(std::min(text.size(), sizeof(bytes) - common_size)));
        return bytes;
    }
    writer.little(offer.capacity);
    writer.bytes(std::span{&offer.peer_configuration, 1});
    writer.bytes(offer.memory_region);
    writer.little(offer.tcp_port);
    writer.little(offer.sequence);
    writer.little(offer.length);
    writer.little(offer.checksum);
    writer.little(offer.clients);
    writer.little(offer.storage_error);
    writer.little(offer.pushing_seconds);
    const auto pusher = std::as_bytes(std::span{offer.pusher});
    writer.bytes(pusher.first(std::min(pusher.size(), pusher_size)));
    const auto why = std::as_bytes(std::span{offer.reason});
    std::ranges::copy(why.first(std::min(why.size(), bytes.size() - why_offset)), bytes.begin() + why_offset);
    return bytes;
}

RequestBytes encode_request(const Request &request) {
    RequestBytes bytes{};
    base::Writer writer{bytes};
    writer.little(static_cast<std::uint32_t>(request.ask));
    writer.little(request.checksum);
    writer.little(request.offset);
    writer.little(request.length);
    return bytes;
}

AnswerBytes encode_answer(const Answer &answer) {
    AnswerBytes bytes{};
    base::Writer writer{bytes};
    writer.little(static_cast<std::uint32_t>(answer.verdict));
    writer.little(static_cast<std::uint32_t>(answer.error));
    writer.little(answer.sequence);
    return bytes;
}

Outcome<Hello> decode_hello(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto found_magic = reader.little<std::uint32_t>();
    Hello hello{reader.little<std::uint16_t>(), static_cast<Mode>(reader.little<std::uint8_t>())};
    const std::size_t expected = hello.version == protocol_version ? sizeof(HelloBytes) : common_size;
    if (bytes.size() < expected || found_magic != message_magic) {
        return failed("is no rpma client ({} bytes of private data, expected rpma's {})", bytes.size(),
                      expected);
    }
    if (hello.version != protocol_version) {
        return hello;
    }
    if (hello.mode < Mode::Push || hello.mode > Mode::Status) {
        return failed("asks for unknown mode {} (expected push, pull, measure or status)",
                      static_cast<int>(hello.mode));
    }
    (void)reader.little<std::uint8_t>();
    hello.messages = reader.little<std::uint32_t>();
    hello.message_bytes = reader.little<std::uint32_t>();
    return hello;
}

Outcome<Offer> decode_offer(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto found_magic = reader.little<std::uint32_t>();
    Offer offer{.version = reader.little<std::uint16_t>(),
                .status = static_cast<Status>(reader.little<std::uint8_t>()),
                .durability = static_cast<Durability>(reader.little<std::uint8_t>())};
    const std::size_t expected = offer.version == protocol_version ? offer_size : common_size;
    if (bytes.size() < expected || found_magic != message_magic) {
        return failed("is no rpma server ({} bytes of private data, expected rpma's {})", bytes.size(),
                      expected);
    }
    if (offer.version != protocol_version || offer.status == Status::Version) {
        return failed("speaks version {} of rpma's protocol (expected {})", offer.version, protocol_version);
    }
    if (offer.status > Status::Full || offer.durability > Durability::Dax) {
        return failed("sent an offer that this rpma does not know (status {}, durability {})",
                      static_cast<int>(offer.status), static_cast<int>(offer.durability));
    }
    if (offer.status != Status::Ok) {
        offer.reason =
            text_of(bytes.subspan(common_size, std::min(bytes.size(), sizeof(OfferBytes)) - common_size));
        return offer;
    }
    offer.capacity = reader.little<std::uint64_t>();
    offer.peer_configuration = static_cast<std::byte>(reader.little<std::uint8_t>());
    std::ranges::copy(reader.bytes(offer.memory_region.size()), offer.memory_region.begin());
    offer.tcp_port = reader.little<std::uint16_t>();
    offer.sequence = reader.little<std::uint64_t>();
    offer.length = reader.little<std::uint64_t>();
    offer.checksum = reader.little<std::uint32_t>();
    offer.clients = reader.little<std::uint32_t>();
    offer.storage_error = reader.little<std::uint32_t>();
    offer.pushing_seconds = reader.little<std::uint32_t>();
    offer.pusher = text_of(reader.bytes(pusher_size));
    offer.reason =
        text_of(bytes.subspan(why_offset, std::min(bytes.size(), sizeof(OfferBytes)) - why_offset));
    if (offer.capacity == 0 || offer.capacity > largest_capacity || offer.length > offer.capacity) {
        return failed("sent an impossible offer (a capacity of {} bytes, a content of {})", offer.capacity,
                      offer.length);
    }
    return offer;
}

Outcome<Request> decode_request(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto ask = reader.little<std::uint32_t>();
    const auto checksum = reader.little<std::uint32_t>();
    const auto offset = reader.little<std::uint64_t>();
    const auto length = reader.little<std::uint64_t>();
    if (bytes.size() != sizeof(RequestBytes) || ask < static_cast<std::uint32_t>(Ask::Store) ||
        ask > static_cast<std::uint32_t>(Ask::Alive)) {
        return failed("sent a message of {} bytes that asks for {} (expected {} bytes: to store, to commit)",
                      bytes.size(), ask, sizeof(RequestBytes));
    }
    return Request{static_cast<Ask>(ask), offset, length, checksum};
}

Outcome<Answer> decode_answer(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto verdict = reader.little<std::uint32_t>();
    const auto error = reader.little<std::uint32_t>();
    const auto sequence = reader.little<std::uint64_t>();
    constexpr std::uint32_t largest_error = 4095;  // the kernel's limit
    if (bytes.size() != sizeof(AnswerBytes) || verdict < static_cast<std::uint32_t>(Verdict::Done) ||
        verdict > static_cast<std::uint32_t>(Verdict::Ended) || error > largest_error) {
        return failed("answered with {} bytes that say {} and error {} (expected {} bytes)", bytes.size(),
                      verdict, error, sizeof(AnswerBytes));
    }
    return Answer{static_cast<Verdict>(verdict), static_cast<int>(error), sequence};
}

std::string ending_text(const Answer &answer) {
    switch (static_cast<Ending>(answer.error)) {
        case Ending::NoProgress:
            return fmt::format(
                "the transfer made no progress for {} seconds (rpma serve --push-lease, --idle-limit)",
                answer.sequence);
        case Ending::NotLetIn:
            return "the key or certificate of this client is not let in any more";
        case Ending::ServerStops:
            return "the server is being stopped";
        case Ending::NotServed:
            return "this client asked for something that the server does not do";
    }
    return fmt::format("a reason that this rpma does not know ({})", answer.error);
}

}  // namespace cli
