// SPDX-License-Identifier: BSD-3-Clause
// librpma/mr_descriptor: what gives a peer access to a region; 21 bytes, little endian, not aligned:
//
//    0       8       16    20  21
//    +-------+-------+-----+---+
//    |address| size  | rkey| u |    u: usage, a set of RPMA_MR_USAGE_ bits
//    +-------+-------+-----+---+
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cursor.hpp"
#include "librpma/api.hpp"

namespace librpma {

inline constexpr int all_usages = 0xff;

struct MrDescriptor {
    std::uint64_t address;
    std::uint64_t size;
    std::uint32_t rkey;
    std::uint8_t usage;
};

inline constexpr std::size_t mr_descriptor_size = 21;
static_assert(mr_descriptor_size == sizeof(std::uint64_t) * 2 + sizeof(std::uint32_t) + sizeof(std::uint8_t));

inline void write(const MrDescriptor &descriptor, std::span<std::byte, mr_descriptor_size> bytes) {
    base::Writer writer{bytes};
    writer.little(descriptor.address);
    writer.little(descriptor.size);
    writer.little(descriptor.rkey);
    writer.little(descriptor.usage);
    assert(writer.ok());
}

// RPMA_E_INVAL, logged, when there are too few bytes or the region allows nothing. Bytes behind are ignored.
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
    return descriptor;
}

}  // namespace librpma
