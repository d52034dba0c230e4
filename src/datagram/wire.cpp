// SPDX-License-Identifier: BSD-3-Clause
// datagram/wire: the bytes in front of a message.
#include "datagram/wire.hpp"

#include "base/cursor.hpp"

namespace datagram {

namespace {

constexpr std::uint32_t tag = 0x55555555;
constexpr std::uint32_t qp_num_mask = 0xffffff;
constexpr std::uint8_t version_4 = 4;
constexpr std::uint8_t version_6 = 6;

std::uint8_t version_of(const Ip &ip) {
    return ip.is_v4() ? version_4 : version_6;
}

void put_ip(base::Writer &out, const Ip &ip) {
    out.bytes(std::as_bytes(std::span{ip.bytes}).subspan(ip.is_v4() ? 12 : 0));
}

Ip take_ip(base::Reader &in, std::uint8_t version) {
    if (version == version_4) {
        return Ip::of_v4({.s_addr = htonl(in.big<std::uint32_t>())});
    }
    Ip ip;
    std::ranges::copy(in.bytes(ip.bytes.size()), std::as_writable_bytes(std::span{ip.bytes}).begin());
    return ip;
}

// Returns whether the header was there as a whole, and the address has the form of its version.
bool consistent(const base::Reader &in, const Ip &ip, std::uint8_t version, std::size_t bytes,
                std::size_t expected) {
    return in.ok() && version == version_of(ip) && bytes == expected;
}

}  // namespace

void encode(const Envelope &envelope, std::span<std::byte> to) {
    base::Writer out{to};
    out.big(tag);
    out.big(version_of(envelope.ip));
    out.big(static_cast<std::uint8_t>(envelope.op));
    out.big(static_cast<std::uint8_t>(envelope_bytes(envelope.ip)));
    out.big(std::uint8_t{0});
    out.big(envelope.qp_num & qp_num_mask);
    put_ip(out, envelope.ip);
}

void encode(const Address &from, std::span<std::byte> to) {
    base::Writer out{to};
    out.big(version_of(from.ip));
    out.big(static_cast<std::uint8_t>(label_bytes(from.ip)));
    out.big(from.port);
    if (!from.ip.is_v4()) {
        out.big(std::uint32_t{0});
    }
    put_ip(out, from.ip);
}

std::optional<Envelope> decode_envelope(std::span<const std::byte> datagram) {
    base::Reader in{datagram};
    const auto its_tag = in.big<std::uint32_t>();
    const auto version = in.big<std::uint8_t>();
    const auto op = in.big<std::uint8_t>();
    const auto bytes = in.big<std::uint8_t>();
    (void)in.big<std::uint8_t>();
    Envelope envelope{.op = Op{op}, .qp_num = in.big<std::uint32_t>() & qp_num_mask};
    envelope.ip = take_ip(in, version);
    const bool known = envelope.op == Op::Message || envelope.op == Op::Answer;
    if (!consistent(in, envelope.ip, version, bytes, envelope_bytes(envelope.ip)) || its_tag != tag ||
        !known) {
        return std::nullopt;
    }
    return envelope;
}

bool names(const Envelope &envelope, const Ip &source) {
    constexpr std::size_t flow_bytes = 4;
    return envelope.ip == source ||
           (!source.is_v4() && std::equal(source.bytes.begin(), source.bytes.end() - flow_bytes,
                                          envelope.ip.bytes.begin() + flow_bytes));
}

std::optional<Address> decode_label(std::span<const std::byte> message) {
    base::Reader in{message};
    const auto version = in.big<std::uint8_t>();
    const auto bytes = in.big<std::uint8_t>();
    Address from{.port = in.big<std::uint16_t>()};
    if (version != version_4) {
        (void)in.big<std::uint32_t>();
    }
    from.ip = take_ip(in, version);
    if (!consistent(in, from.ip, version, bytes, label_bytes(from.ip)) || from.port == 0) {
        return std::nullopt;
    }
    return from;
}

}  // namespace datagram
