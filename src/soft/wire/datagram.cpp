// SPDX-License-Identifier: BSD-3-Clause
#include "soft/wire/datagram.hpp"

#include <algorithm>
#include <cassert>

#include "base/cursor.hpp"

namespace soft::wire {

namespace {

constexpr std::uint32_t magic = 0x73525544;  // "sRUD"
constexpr std::uint8_t version = 1;
enum class Kind : std::uint8_t { Message = 1, Request = 2, Reply = 3 };

constexpr std::uint16_t flag_solicited = 0x0001;
constexpr std::uint16_t flag_immediate = 0x0002;
constexpr std::uint32_t qp_num_mask = 0xffffff;

// Returns the prefix's last field; nothing when this is not the prefix of this kind.
std::optional<std::uint16_t> read_prefix(base::Reader &reader, Kind kind) {
    const bool ours = reader.big<std::uint32_t>() == magic && reader.big<std::uint8_t>() == version &&
                      reader.big<std::uint8_t>() == static_cast<std::uint8_t>(kind);
    const auto extra = reader.big<std::uint16_t>();
    return ours && reader.ok() ? std::optional{extra} : std::nullopt;
}

void write_prefix(base::Writer &writer, Kind kind, std::size_t extra) {
    writer.big(magic);
    writer.big(version);
    writer.big(static_cast<std::uint8_t>(kind));
    writer.big(static_cast<std::uint16_t>(extra));
}

}  // namespace

std::optional<MessageHeader> decode_message(std::span<const std::byte> datagram) {
    base::Reader reader{datagram};
    const auto flags = read_prefix(reader, Kind::Message);
    if (!flags || (*flags & ~(flag_solicited | flag_immediate)) != 0) {
        return std::nullopt;
    }
    MessageHeader header;
    header.solicited = (*flags & flag_solicited) != 0;
    header.has_immediate = (*flags & flag_immediate) != 0;
    header.destination = reader.big<std::uint32_t>();
    header.source = reader.big<std::uint32_t>();
    header.qkey = reader.big<std::uint32_t>();
    header.immediate = reader.big<std::uint32_t>();
    const bool sound = reader.ok() && header.destination <= qp_num_mask && header.source <= qp_num_mask &&
                       (header.has_immediate || header.immediate == 0);
    return sound ? std::optional{header} : std::nullopt;
}

std::optional<LookupRequest> decode_lookup_request(std::span<const std::byte> datagram) {
    base::Reader reader{datagram};
    const auto bytes = read_prefix(reader, Kind::Request);
    if (!bytes || datagram.size() != lookup_request_bytes || *bytes > lookup_max_private_bytes) {
        return std::nullopt;
    }
    LookupRequest request;
    request.token = reader.big<std::uint64_t>();
    request.private_data = reader.bytes(*bytes);
    const auto padding = reader.bytes(reader.left());
    const bool zero = std::ranges::all_of(padding, [](std::byte one) { return one == std::byte{0}; });
    return zero ? std::optional{request} : std::nullopt;
}

std::optional<LookupReply> decode_lookup_reply(std::span<const std::byte> datagram) {
    base::Reader reader{datagram};
    const auto bytes = read_prefix(reader, Kind::Reply);
    if (!bytes || *bytes > reply_max_private_bytes || datagram.size() != reply_header_bytes + *bytes) {
        return std::nullopt;
    }
    LookupReply reply;
    reply.token = reader.big<std::uint64_t>();
    reply.status = static_cast<LookupStatus>(reader.big<std::uint32_t>());
    reply.qp_num = reader.big<std::uint32_t>();
    reply.qkey = reader.big<std::uint32_t>();
    reply.private_data = reader.bytes(*bytes);
    const bool known = reply.status == LookupStatus::Found || reply.status == LookupStatus::Rejected;
    return known && reply.qp_num <= qp_num_mask ? std::optional{reply} : std::nullopt;
}

MessageHeaderBytes encode(const MessageHeader &header) {
    MessageHeaderBytes bytes;
    base::Writer writer{bytes};
    write_prefix(writer, Kind::Message,
                 static_cast<std::size_t>((header.solicited ? flag_solicited : 0) |
                                          (header.has_immediate ? flag_immediate : 0)));
    writer.big(header.destination);
    writer.big(header.source);
    writer.big(header.qkey);
    writer.big(header.immediate);
    assert(writer.used() == bytes.size());
    return bytes;
}

LookupRequestBytes encode(const LookupRequest &request) {
    assert(request.private_data.size() <= lookup_max_private_bytes);
    LookupRequestBytes bytes{};
    base::Writer writer{bytes};
    write_prefix(writer, Kind::Request, request.private_data.size());
    writer.big(request.token);
    writer.bytes(request.private_data);
    return bytes;
}

std::size_t encode(const LookupReply &reply, LookupReplyBytes &bytes) {
    assert(reply.private_data.size() <= reply_max_private_bytes);
    base::Writer writer{bytes};
    write_prefix(writer, Kind::Reply, reply.private_data.size());
    writer.big(reply.token);
    writer.big(static_cast<std::uint32_t>(reply.status));
    writer.big(reply.qp_num);
    writer.big(reply.qkey);
    writer.bytes(reply.private_data);
    return writer.used();
}

}  // namespace soft::wire
