// SPDX-License-Identifier: BSD-3-Clause
// stream/wire: the bytes of librdmacm's rsockets, protocol version 1.
#include "stream/wire.hpp"

#include <algorithm>

#include "base/cursor.hpp"

namespace stream {

namespace {

constexpr std::uint8_t flag_big_endian = 1 << 0;
constexpr std::uint8_t flag_slots = 1 << 1;
constexpr std::uint8_t flag_counts_slots = 1 << 2;
constexpr std::size_t reserved_bytes = 3;
constexpr std::uint32_t scale_limit = 128;
constexpr std::uint32_t scale_most = 127 << 8;

template <std::size_t Size, typename Write>
std::array<std::byte, Size> written(Write write) {
    std::array<std::byte, Size> bytes{};
    base::Writer writer{bytes};
    write(writer);
    return bytes;
}

void put(base::Writer &writer, const KeyedMemory &memory, std::endian order) {
    if (order == std::endian::big) {
        writer.big(memory.address);
        writer.big(memory.key);
        writer.big(memory.length);
    } else {
        writer.little(memory.address);
        writer.little(memory.key);
        writer.little(memory.length);
    }
}

KeyedMemory take(base::Reader &reader) {
    KeyedMemory memory;
    memory.address = reader.big<std::uint64_t>();
    memory.key = reader.big<std::uint32_t>();
    memory.length = reader.big<std::uint32_t>();
    return memory;
}

bool is_possible(const Hello &hello) {
    const std::uint64_t list = std::uint64_t{hello.list.length} * window_bytes + hello.slots * slot_bytes;
    return hello.credits != 0 && hello.list.length >= windows && is_memory(hello.list.address, list) &&
           hello.data.length != 0 && is_memory(hello.data.address, hello.data.length);
}

}  // namespace

std::array<std::byte, hello_bytes> encode(const Hello &hello) {
    return written<hello_bytes>([&](base::Writer &writer) {
        writer.big(protocol_version);
        writer.big(static_cast<std::uint8_t>(flag_slots | (hello.big_endian ? flag_big_endian : 0) |
                                             (hello.counts_slots ? flag_counts_slots : 0)));
        writer.big(hello.credits);
        writer.bytes(std::array<std::byte, reserved_bytes>{});
        writer.big(to_scale(hello.slots));
        put(writer, hello.list, std::endian::big);
        put(writer, hello.data, std::endian::big);
    });
}

base::Result<Hello> decode_hello(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    const auto version = reader.big<std::uint8_t>();
    if (reader.ok() && version != protocol_version) {
        return base::failure(ENOTSUP);
    }
    Hello hello;
    const auto flags = reader.big<std::uint8_t>();
    hello.big_endian = (flags & flag_big_endian) != 0;
    hello.counts_slots = (flags & flag_counts_slots) != 0;
    hello.credits = reader.big<std::uint16_t>();
    (void)reader.bytes(reserved_bytes);
    const auto slots = reader.big<std::uint8_t>();
    hello.slots = (flags & flag_slots) != 0 ? from_scale(slots) : 0;
    hello.list = take(reader);
    hello.data = take(reader);
    if (!reader.ok() || !is_possible(hello)) {
        return base::failure(EPROTO);
    }
    return hello;
}

std::uint8_t to_scale(std::uint32_t value) {
    if (value <= scale_limit) {
        return static_cast<std::uint8_t>(value);
    }
    return static_cast<std::uint8_t>(scale_limit | std::min(value, scale_most) >> 8);
}

std::uint32_t from_scale(std::uint8_t code) {
    return code <= scale_limit ? code : (code & (scale_limit - 1)) << 8;
}

std::array<std::byte, window_bytes> encode_window(const KeyedMemory &memory, std::endian order) {
    return written<window_bytes>([&](base::Writer &writer) { put(writer, memory, order); });
}

std::array<std::byte, slot_bytes> encode_slot(const Slot &slot, std::endian order) {
    return written<slot_bytes>([&](base::Writer &writer) {
        if (order == std::endian::big) {
            writer.big(slot.offset);
        } else {
            writer.little(slot.offset);
        }
        put(writer, slot.memory, order);
    });
}

}  // namespace stream
