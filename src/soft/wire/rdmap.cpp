// SPDX-License-Identifier: BSD-3-Clause
#include "soft/wire/rdmap.hpp"

#include <algorithm>
#include <iterator>

#include "base/cursor.hpp"

namespace soft::wire {

std::array<std::byte, read_request_bytes> encode(const ReadRequest &request) {
    std::array<std::byte, read_request_bytes> body;
    base::Writer writer{body};
    writer.big(request.sink_stag);
    writer.big(request.sink_offset);
    writer.big(request.size);
    writer.big(request.source_stag);
    writer.big(request.source_offset);
    return body;
}

Decoded<ReadRequest> decode_read_request(std::span<const std::byte> body) {
    base::Reader reader{body};
    ReadRequest request{};
    request.sink_stag = reader.big<std::uint32_t>();
    request.sink_offset = reader.big<std::uint64_t>();
    request.size = reader.big<std::uint32_t>();
    request.source_stag = reader.big<std::uint32_t>();
    request.source_offset = reader.big<std::uint64_t>();
    if (!reader.ok() || reader.left() != 0) {
        return NotDecoded{{"READ REQUEST body that is not 28 bytes", terminate::untagged_too_long}};
    }
    return request;
}

std::array<std::byte, flush_request_bytes> encode(const FlushRequest &request) {
    std::array<std::byte, flush_request_bytes> body;
    base::Writer writer{body};
    writer.big(request.stag);
    writer.big(request.offset);
    writer.big(request.length);
    writer.big(static_cast<std::uint32_t>(request.level));
    return body;
}

Decoded<FlushRequest> decode_flush_request(std::span<const std::byte> body) {
    base::Reader reader{body};
    FlushRequest request{};
    request.stag = reader.big<std::uint32_t>();
    request.offset = reader.big<std::uint64_t>();
    request.length = reader.big<std::uint32_t>();
    const auto level = reader.big<std::uint32_t>();
    if (!reader.ok() || reader.left() != 0) {
        return NotDecoded{{"FLUSH body that is not 20 bytes", terminate::untagged_too_long}};
    }
    request.level = FlushLevel{level};
    if (request.level != FlushLevel::Visibility && request.level != FlushLevel::Persistent) {
        return NotDecoded{
            {"FLUSH level that is neither visibility nor persistent", terminate::operation_unspecified}};
    }
    return request;
}

std::array<std::byte, atomic_request_bytes> encode(const AtomicRequest &request) {
    std::array<std::byte, atomic_request_bytes> body;
    base::Writer writer{body};
    writer.big(static_cast<std::uint32_t>(request.operation));
    writer.big(request.identifier);
    writer.big(request.stag);
    writer.big(request.offset);
    writer.big(request.add_swap);
    writer.big(request.add_swap_mask);
    writer.big(request.compare);
    writer.big(request.compare_mask);
    return body;
}

Decoded<AtomicRequest> decode_atomic_request(std::span<const std::byte> body) {
    constexpr std::uint32_t operation_mask = 0xf;  // the rest is reserved
    base::Reader reader{body};
    AtomicRequest request{};
    request.operation = AtomicOperation{reader.big<std::uint32_t>() & operation_mask};
    request.identifier = reader.big<std::uint32_t>();
    request.stag = reader.big<std::uint32_t>();
    request.offset = reader.big<std::uint64_t>();
    request.add_swap = reader.big<std::uint64_t>();
    request.add_swap_mask = reader.big<std::uint64_t>();
    request.compare = reader.big<std::uint64_t>();
    request.compare_mask = reader.big<std::uint64_t>();
    if (!reader.ok() || reader.left() != 0) {
        return NotDecoded{{"ATOMIC REQUEST body that is not 52 bytes", terminate::untagged_too_long}};
    }
    if (request.operation != AtomicOperation::FetchAdd && request.operation != AtomicOperation::CompareSwap) {
        return NotDecoded{
            {"atomic operation that is neither FetchAdd nor CmpSwap", terminate::operation_unspecified}};
    }
    return request;
}

std::array<std::byte, atomic_response_bytes> encode(const AtomicResponse &response) {
    std::array<std::byte, atomic_response_bytes> body;
    base::Writer writer{body};
    writer.big(response.identifier);
    writer.big(response.original);
    return body;
}

Decoded<AtomicResponse> decode_atomic_response(std::span<const std::byte> body) {
    base::Reader reader{body};
    AtomicResponse response{};
    response.identifier = reader.big<std::uint32_t>();
    response.original = reader.big<std::uint64_t>();
    if (!reader.ok() || reader.left() != 0) {
        return NotDecoded{{"ATOMIC RESPONSE body that is not 12 bytes", terminate::untagged_too_long}};
    }
    return response;
}

std::array<std::byte, immediate_bytes> encode(const ImmediateValue &immediate) {
    std::array<std::byte, immediate_bytes> body{};
    std::ranges::copy(immediate, body.begin());
    return body;
}

Decoded<ImmediateValue> decode_immediate(std::span<const std::byte> body) {
    if (body.size() != immediate_bytes) {
        return NotDecoded{{"IMMEDIATE DATA that is not 8 bytes", terminate::untagged_too_long}};
    }
    ImmediateValue immediate;
    std::ranges::copy(body.first<sizeof(ImmediateValue)>(), immediate.begin());
    return immediate;
}

std::array<std::byte, acknowledgement_bytes> encode(const Acknowledgement &placed) {
    std::array<std::byte, acknowledgement_bytes> body;
    base::Writer writer{body};
    writer.big(placed.writes);
    writer.big(placed.messages);
    return body;
}

Decoded<Acknowledgement> decode_acknowledgement(std::span<const std::byte> body) {
    base::Reader reader{body};
    Acknowledgement placed;
    placed.writes = reader.big<std::uint32_t>();
    placed.messages = reader.big<std::uint32_t>();
    if (!reader.ok() || reader.left() != 0) {
        return NotDecoded{{"ACKNOWLEDGEMENT that is not 8 bytes", terminate::untagged_too_long}};
    }
    return placed;
}

std::array<std::byte, terminate_bytes> encode(const TerminateCode &code) {
    return {static_cast<std::byte>(code.layer << 4 | code.type), static_cast<std::byte>(code.code),
            std::byte{0}, std::byte{0}};
}

std::size_t encode(const TerminateCode &code, std::span<const std::byte> header,
                   std::span<const std::byte> read_request, std::span<std::byte, terminate_max_bytes> bytes) {
    constexpr std::byte length_and_header{0xc0};
    constexpr std::byte read_request_too{0x20};
    const bool of_rdmap = code.layer == 0;
    const bool quotes = !header.empty() && (of_rdmap ? code.type != 0 : code.layer == 1);
    const bool quotes_request = quotes && of_rdmap && code.type == 1 && !read_request.empty();
    auto control = encode(code);
    control[2] =
        (quotes ? length_and_header : std::byte{0}) | (quotes_request ? read_request_too : std::byte{0});
    base::Writer writer{bytes};
    writer.bytes(control);
    if (quotes) {
        writer.bytes(header);
    }
    if (quotes_request) {
        writer.bytes(read_request);
    }
    return writer.used();
}

Decoded<TerminateCode> decode_terminate(std::span<const std::byte> body) {
    if (body.size() < terminate_bytes) {
        return NotDecoded{{"TERMINATE body shorter than 4 bytes", terminate::untagged_too_long}};
    }
    const auto first = std::to_integer<std::uint8_t>(body[0]);
    return TerminateCode{static_cast<std::uint8_t>(first >> 4), static_cast<std::uint8_t>(first & 0x0f),
                         std::to_integer<std::uint8_t>(body[1])};
}

const char *meaning_of(const TerminateCode &code) {
    struct Meaning {
        TerminateCode code;
        const char *text;
    };
    static constexpr Meaning meanings[] = {
        {terminate::local_catastrophic, "the peer met an error of its own"},
        {terminate::invalid_stag, "the peer knows no region with this key"},
        {terminate::tagged_invalid_stag, "the peer knows no region with this key"},
        {terminate::bounds, "the peer's region does not reach so far"},
        {terminate::tagged_bounds, "the peer's region does not reach so far"},
        {terminate::access, "the peer's region does not allow this access"},
        {terminate::not_associated, "the peer's region is not for this connection"},
        {terminate::tagged_not_associated, "the peer's region is not for this connection"},
        {terminate::wrap, "the access goes around the end of the address space"},
        {terminate::tagged_wrap, "the access goes around the end of the address space"},
        {terminate::cannot_invalidate, "the peer has no key like this to give back"},
        {terminate::rdmap_version, "the peer speaks another version of RDMAP"},
        {terminate::tagged_version, "the peer speaks another version of DDP"},
        {terminate::untagged_version, "the peer speaks another version of DDP"},
        {terminate::unexpected_opcode, "the peer does not know or expect this operation"},
        {terminate::catastrophic_stream, "the peer cannot do an operation of this kind"},
        {terminate::operation_unspecified, "the peer cannot do this operation"},
        {terminate::untagged_queue, "the peer has no such queue"},
        {terminate::untagged_no_buffer, "the peer has no room for this message or request"},
        {terminate::untagged_msn, "the peer expected another message"},
        {terminate::untagged_offset, "the peer expected another part of the message"},
        {terminate::untagged_too_long, "the message is longer than the peer's receive"},
        {terminate::mpa_crc, "the peer found a wrong checksum"},
        {terminate::mpa_frame, "the peer found a frame that is none"},
        {terminate::insufficient_ird, "the peer wants more reads at once than are served"},
        {terminate::no_matching_rtr, "the peer wants another first message"},
    };
    const auto *const known = std::ranges::find(meanings, code, &Meaning::code);
    return known != std::end(meanings) ? known->text : "for a reason that it alone knows";
}

}  // namespace soft::wire
