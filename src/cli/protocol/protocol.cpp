// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/protocol: encodes, and decodes with checks.
#include "cli/protocol/protocol.hpp"

#include <algorithm>
#include <string_view>

#include "base/cursor.hpp"

namespace cli {

namespace {

constexpr std::uint32_t message_magic = 0x4c4f4f50;  // "POOL"
// In every version both messages begin with magic, version, and mode or status.
constexpr std::size_t common_size = 8;

// Text in a message ends with the message or with a zero.
std::string text_of(std::span<const std::byte> bytes) {
    return printable(bytes, std::string_view{"\0", 1});
}

// Writes text into a field of this size, and zeros behind it.
void write_text(base::Writer &writer, std::string_view text, std::size_t size) {
    const auto bytes = std::as_bytes(std::span{text}).first(std::min(text.size(), size));
    writer.bytes(bytes);
    for (std::size_t done = bytes.size(); done < size; ++done) {
        writer.little(std::uint8_t{0});
    }
}

// Returns the text of a field that has nothing but zeros behind the text, and nothing for other bytes.
Outcome<std::string> exact_text(std::span<const std::byte> bytes) {
    const auto end = std::ranges::find(bytes, std::byte{0});
    if (std::ranges::any_of(end, bytes.end(), [](std::byte byte) { return byte != std::byte{0}; })) {
        return failed("has bytes behind the end of a text");
    }
    return std::string{reinterpret_cast<const char *>(bytes.data()),
                       static_cast<std::size_t>(end - bytes.begin())};
}

// Returns whether an offer with this status has more than a text.
bool has_fields(Status status) {
    return status == Status::Ok || status == Status::Forgot;
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
    if (hello.mode == Mode::Pull) {
        writer.little(hello.sequence);
    } else {
        writer.little(hello.messages);
        writer.little(hello.message_bytes);
    }
    write_text(writer, hello.name, longest_name);
    return bytes;
}

OfferBytes encode_offer(const Offer &offer) {
    OfferBytes bytes{};
    base::Writer writer{bytes};
    writer.little(message_magic);
    writer.little(offer.version);
    writer.little(static_cast<std::uint8_t>(offer.status));
    writer.little(static_cast<std::uint8_t>(offer.durability));
    if (!has_fields(offer.status)) {
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
    for (const std::uint64_t number : {offer.tag.epoch, offer.tag.number, offer.tag.writer, offer.instance}) {
        writer.little(number);
    }
    return bytes;
}

RequestBytes encode_request(const Request &request) {
    RequestBytes bytes{};
    base::Writer writer{bytes};
    writer.little(static_cast<std::uint32_t>(request.ask));
    writer.little(request.checksum);
    writer.little(request.offset);
    writer.little(request.length);
    write_text(writer, request.label, longest_label);
    return bytes;
}

AnswerBytes encode_answer(const Answer &answer) {
    AnswerBytes bytes{};
    base::Writer writer{bytes};
    writer.little(static_cast<std::uint32_t>(answer.verdict));
    writer.little(static_cast<std::uint32_t>(answer.error));
    writer.little(answer.sequence);
    writer.little(answer.checksum);
    writer.bytes(answer.memory_region);
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
    if (hello.mode < Mode::Push || hello.mode > Mode::Tag) {
        return failed("asks for unknown mode {} (expected push, pull, measure, status, list or tag)",
                      static_cast<int>(hello.mode));
    }
    (void)reader.little<std::uint8_t>();
    if (hello.mode == Mode::Pull) {
        hello.sequence = reader.little<std::uint64_t>();
    } else {
        hello.messages = reader.little<std::uint32_t>();
        hello.message_bytes = reader.little<std::uint32_t>();
    }
    hello.name = TRY(exact_text(reader.bytes(longest_name)));
    const bool needs_name = hello.mode == Mode::Push || hello.mode == Mode::Pull || hello.mode == Mode::Tag;
    if (!is_name(hello.name) && (needs_name || !hello.name.empty())) {
        return failed("asks for a name that is none (expected {})", name_form);
    }
    return hello;
}

Outcome<Offer> decode_offer(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto found_magic = reader.little<std::uint32_t>();
    Offer offer{.version = reader.little<std::uint16_t>(),
                .status = static_cast<Status>(reader.little<std::uint8_t>()),
                .durability = static_cast<Durability>(reader.little<std::uint8_t>())};
    const std::size_t expected = offer.version == protocol_version ? sizeof(OfferBytes) : common_size;
    if (bytes.size() < expected || found_magic != message_magic) {
        return failed("is no rpma server ({} bytes of private data, expected rpma's {})", bytes.size(),
                      expected);
    }
    if (offer.version != protocol_version || offer.status == Status::Version) {
        return failed("speaks version {} of rpma's protocol (expected {})", offer.version, protocol_version);
    }
    if (offer.status > Status::Forgot || offer.durability > Durability::Dax) {
        return failed("sent an offer that this rpma does not know (status {}, durability {})",
                      static_cast<int>(offer.status), static_cast<int>(offer.durability));
    }
    if (!has_fields(offer.status)) {
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
    for (std::uint64_t *const number :
         {&offer.tag.epoch, &offer.tag.number, &offer.tag.writer, &offer.instance}) {
        *number = reader.little<std::uint64_t>();
    }
    if (offer.capacity == 0 || offer.capacity > largest_capacity || offer.length > largest_capacity) {
        return failed("sent an impossible offer (a capacity of {} bytes, a content of {})", offer.capacity,
                      offer.length);
    }
    if (offer.tag.number > largest_number || (!offer.tag && offer.tag != Tag{})) {
        return failed("sent an impossible tag ({})", tag_text(offer.tag));
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
        ask > static_cast<std::uint32_t>(Ask::Tag)) {
        return failed("sent a message of {} bytes that asks for {} (expected {} bytes: to store, to commit)",
                      bytes.size(), ask, sizeof(RequestBytes));
    }
    return Request{static_cast<Ask>(ask), offset, length, checksum,
                   TRY(exact_text(reader.bytes(longest_label)))};
}

Outcome<Answer> decode_answer(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto verdict = reader.little<std::uint32_t>();
    const auto error = reader.little<std::uint32_t>();
    const auto sequence = reader.little<std::uint64_t>();
    Answer answer{static_cast<Verdict>(verdict), static_cast<int>(error), sequence,
                  reader.little<std::uint32_t>()};
    std::ranges::copy(reader.bytes(answer.memory_region.size()), answer.memory_region.begin());
    constexpr std::uint32_t largest_error = 4095;  // the kernel's limit
    if (bytes.size() != sizeof(AnswerBytes) || verdict < static_cast<std::uint32_t>(Verdict::Done) ||
        verdict > static_cast<std::uint32_t>(Verdict::Newer) || error > largest_error) {
        return failed("answered with {} bytes that say {} and error {} (expected {} bytes)", bytes.size(),
                      verdict, error, sizeof(AnswerBytes));
    }
    return answer;
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
        case Ending::TooSlow:
            return fmt::format(
                "another push needs the room that this one has reserved and fills too slowly (expected it to "
                "be full within {} seconds; one that takes the room again has longer)",
                answer.sequence);
    }
    return fmt::format("a reason that this rpma does not know ({})", answer.error);
}

}  // namespace cli
