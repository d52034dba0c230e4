// SPDX-License-Identifier: BSD-3-Clause
// librpma/mr_descriptor: what gives a peer access to a region; 21 or 23 bytes, little endian, not aligned:
//
//    0       8       16    20  21  22  23
//    +-------+-------+-----+---+---+---+
//    |address| size  | rkey| u | m | n |    u: usage, a set of RPMA_MR_USAGE_ bits
//    +-------+-------+-----+---+---+---+    m, n: mark and native operations, where there are some
//
// m and n are there where a connection does not tell what its peer can do (verbs::Provider::knows_peer). Who
// does not know them ignores them, as all behind byte 20; what else may be there, mostly a peer
// configuration's descriptor (0 or 1) and zeros, is not taken for them.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cursor.hpp"
#include "librpma/api.hpp"
#include "verbs/native.hpp"

namespace librpma {

inline constexpr int all_usages = 0xff;

struct MrDescriptor {
    std::uint64_t address;
    std::uint64_t size;
    std::uint32_t rkey;
    std::uint8_t usage;
    // A set of verbs::native_flush and verbs::native_atomic_write.
    std::uint8_t native_operations = 0;

    [[nodiscard]] std::size_t written_size() const;
};

inline constexpr std::size_t mr_descriptor_size = 21;
static_assert(mr_descriptor_size == sizeof(std::uint64_t) * 2 + sizeof(std::uint32_t) + sizeof(std::uint8_t));
inline constexpr std::size_t most_mr_descriptor_size = mr_descriptor_size + 2;

inline constexpr std::uint8_t native_mark = 'N';
// Of the byte behind it: the upper bits, so that it too is none that is there by chance.
inline constexpr std::uint8_t native_byte = 0xa0;
inline constexpr std::uint8_t all_native_operations = verbs::native_flush | verbs::native_atomic_write;

inline std::size_t MrDescriptor::written_size() const {
    return native_operations != 0 ? most_mr_descriptor_size : mr_descriptor_size;
}

// bytes has room for written_size().
inline void write(const MrDescriptor &descriptor, std::span<std::byte> bytes) {
    base::Writer writer{bytes};
    writer.little(descriptor.address);
    writer.little(descriptor.size);
    writer.little(descriptor.rkey);
    writer.little(descriptor.usage);
    if (descriptor.native_operations != 0) {
        writer.little(native_mark);
        writer.little(static_cast<std::uint8_t>(native_byte | descriptor.native_operations));
    }
    assert(writer.ok());
}

// RPMA_E_INVAL, logged, when there are too few bytes or the region allows nothing. Other bytes behind are
// ignored.
[[nodiscard]] inline Result<MrDescriptor> read_mr_descriptor(std::span<const std::byte> bytes) {
    base::Reader reader{bytes};
    MrDescriptor descriptor{};
    descriptor.address = reader.little<std::uint64_t>();
    descriptor.size = reader.little<std::uint64_t>();
    descriptor.rkey = reader.little<std::uint32_t>();
    descriptor.usage = reader.little<std::uint8_t>();
    if (!reader.ok()) {
        BASE_LOG(Error, "a memory region's descriptor has %zu bytes, at least %zu are needed", bytes.size(),
                 mr_descriptor_size);
        return Failure{RPMA_E_INVAL};
    }
    if (descriptor.usage == 0) {
        BASE_LOG(Error,
                 "a memory region's descriptor has usage 0, at least one RPMA_MR_USAGE_ bit is needed");
        return Failure{RPMA_E_INVAL};
    }
    const auto mark = reader.little<std::uint8_t>();
    const auto native = reader.little<std::uint8_t>();
    if (reader.ok() && mark == native_mark && (native & ~all_native_operations) == native_byte) {
        descriptor.native_operations = native & all_native_operations;
    }
    return descriptor;
}

}  // namespace librpma
