// SPDX-License-Identifier: BSD-3-Clause
// soft/wire/rdmap: see the header.
#include "soft/wire/rdmap.hpp"

#include <algorithm>

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
        return Refusal{{"READ REQUEST body that is not 28 bytes", terminate::untagged_too_long}};
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
        return Refusal{{"FLUSH body that is not 20 bytes", terminate::untagged_too_long}};
    }
    request.level = FlushLevel{level};
    if (request.level != FlushLevel::Visibility && request.level != FlushLevel::Persistent) {
        return Refusal{
            {"FLUSH level that is neither visibility nor persistent", terminate::operation_unspecified}};
    }
    return request;
}

std::array<std::byte, immediate_bytes> encode(const ImmediateValue &immediate) {
    std::array<std::byte, immediate_bytes> body{};
    std::ranges::copy(immediate, body.begin());
    return body;
}

Decoded<ImmediateValue> decode_immediate(std::span<const std::byte> body) {
    if (body.size() != immediate_bytes) {
        return Refusal{{"IMMEDIATE DATA that is not 8 bytes", terminate::untagged_too_long}};
    }
    ImmediateValue immediate;
    std::ranges::copy(body.first<sizeof(ImmediateValue)>(), immediate.begin());
    return immediate;
}

std::array<std::byte, terminate_bytes> encode(const TerminateCode &code) {
    return {static_cast<std::byte>(code.layer << 4 | code.type), static_cast<std::byte>(code.code),
            std::byte{0}, std::byte{0}};
}

Decoded<TerminateCode> decode_terminate(std::span<const std::byte> body) {
    if (body.size() < terminate_bytes) {
        return Refusal{{"TERMINATE body shorter than 4 bytes", terminate::untagged_too_long}};
    }
    const auto first = std::to_integer<std::uint8_t>(body[0]);
    return TerminateCode{static_cast<std::uint8_t>(first >> 4), static_cast<std::uint8_t>(first & 0x0f),
                         std::to_integer<std::uint8_t>(body[1])};
}

}  // namespace soft::wire
