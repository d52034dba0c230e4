// SPDX-License-Identifier: BSD-3-Clause
// stream/wire: the bytes of librdmacm's rsockets, protocol version 1. Pure: no memory of a peer is touched
// here.
//
// Private data, in a connection's request and in its reply; all of it in network order:
//
//      0       1       2               4                       7       8
//     +-------+-------+---------------+-----------------------+-------+--------------------------------+
//     |version| flags |    credits    |       reserved        | slots | list: address    (8 bytes)     |
//     +-------+-------+---------------+---------------+-------+-------+--------------------------------+
//     | list: key                 16  | list: entries     20  | data: address    (8 bytes)         24  |
//     +-------------------------------+-----------------------+----------------------------------------+
//     | data: key                 32  | data: bytes       36  |
//     +-------------------------------+-----------------------+
//
//     flags: bit 0, the sender is big-endian; bit 1, slots has a meaning; bit 2, the sender counts the words
//     about slots among the messages that it took. librdmacm neither does that nor knows bit 2. The list is
//     memory of the sender that its peer writes: windows of 16 bytes, then slots of 24. data is the first
//     half of its buffer.
//
// A window in the list, and a slot behind the windows, in the order of the processor whose memory it is:
//
//     +----------------+--------+--------+      +----------------+----------------+--------+--------+
//     | address    (8) | key (4)| len (4)|      | offset     (8) | address    (8) | key (4)| len (4)|
//     +----------------+--------+--------+      +----------------+----------------+--------+--------+
//
// A message word: three bits say what it is, the other 29 are its value. On iWARP a send of 4 bytes carries
// it, in the sender's order; elsewhere the immediate data of a write, in network order.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"

namespace stream {

inline constexpr std::uint8_t protocol_version = 1;
inline constexpr std::size_t hello_bytes = 40;
inline constexpr std::size_t window_bytes = 16;
inline constexpr std::size_t slot_bytes = 24;
inline constexpr std::size_t word_bytes = 4;
// Windows that an end has room for in its list.
inline constexpr std::uint32_t windows = 2;
static_assert(window_bytes % alignof(std::uint64_t) == 0 && slot_bytes % alignof(std::uint64_t) == 0);

// Memory of one end with the key by which the other names it. A list's length is a number of windows.
struct KeyedMemory {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t length = 0;

    friend bool operator==(const KeyedMemory &, const KeyedMemory &) = default;
};

// Both ends tell each other this before the first byte.
struct Hello {
    bool big_endian = std::endian::native == std::endian::big;
    bool counts_slots = true;
    std::uint16_t credits = 0;
    std::uint32_t slots = 0;
    KeyedMemory list;
    KeyedMemory data;

    friend bool operator==(const Hello &, const Hello &) = default;
};

[[nodiscard]] std::array<std::byte, hello_bytes> encode(const Hello &hello);
// bytes may be longer: some devices add zeros. ENOTSUP: another version. EPROTO: too short, or values that
// no list or buffer can have.
[[nodiscard]] base::Result<Hello> decode_hello(std::span<const std::byte> bytes);

// Numbers of slots in 8 bits: up to 128 as they are, above in steps of 256. Rounded down, at most 32512.
[[nodiscard]] std::uint8_t to_scale(std::uint32_t value);
[[nodiscard]] std::uint32_t from_scale(std::uint8_t code);

enum class Op : std::uint8_t {
    Data = 0,     // value: bytes that were written into the receiver's window
    Window = 4,   // value: up to which message the receiver of this may send, of 16 bits
    Slot = 6,     // value: the slot that was written
    Control = 7,  // value: Control
};

enum class Control : std::uint32_t {
    Disconnect = 0,
    KeepAlive = 1,
    Shutdown = 2,
};

struct Word {
    std::uint8_t op;  // Op, or what a peer made up
    std::uint32_t value;
};

inline constexpr std::uint32_t max_value = (std::uint32_t{1} << 29) - 1;

[[nodiscard]] constexpr std::uint32_t encode(Op op, std::uint32_t value) {
    return static_cast<std::uint32_t>(op) << 29 | (value & max_value);
}
[[nodiscard]] constexpr Word decode_word(std::uint32_t word) {
    return {.op = static_cast<std::uint8_t>(word >> 29), .value = word & max_value};
}

// order is that of the end that will read it.
[[nodiscard]] std::array<std::byte, window_bytes> encode_window(const KeyedMemory &memory, std::endian order);

struct Slot {
    std::uint64_t offset = 0;
    KeyedMemory memory;

    friend bool operator==(const Slot &, const Slot &) = default;
};
[[nodiscard]] std::array<std::byte, slot_bytes> encode_slot(const Slot &slot, std::endian order);

// Returns whether the bytes from `address` on lie in an address space.
[[nodiscard]] constexpr bool is_memory(std::uint64_t address, std::uint64_t bytes) {
    return bytes <= UINT64_MAX - address;
}

}  // namespace stream
